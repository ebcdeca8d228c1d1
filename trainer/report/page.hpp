// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace trainer {

/// A page of HTML that needs no other file.
class Page {
 public:
  Page(const std::string& title, const std::string& subtitle);

  void section(const std::string& title, const std::string& words);
  /// `name`: how scripts find it in the page (its element's id).
  void picture(const std::string& name, const std::string& svg);
  /// The first row is the heading; columns after the first `text_columns` hold numbers.
  void table(const std::vector<std::vector<std::string>>& rows, std::size_t text_columns);
  /// Names and what there is to say of them.
  void facts(const std::vector<std::pair<std::string, std::string>>& rows);
  void command(const std::string& line);
  std::string finish() const;

 private:
  std::string title_, body_;
};

}  // namespace trainer
