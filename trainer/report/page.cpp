// SPDX-License-Identifier: BSD-3-Clause
#include "report/page.hpp"

#include <fmt/format.h>

#include "report/plot.hpp"

namespace trainer {

namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 800px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2.2rem }
figure { margin: 0.5rem 0 } figure, .wide { overflow-x: auto } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: 0.87rem } th, td { padding: 0.2rem 0.7rem; border-bottom: 1px solid #e4e4e4; text-align: left; vertical-align: top }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
pre { background: #f5f5f5; padding: 0.6rem; white-space: pre-wrap; overflow-wrap: anywhere } .subtitle { color: #666 })";

}  // namespace

Page::Page(const std::string& title, const std::string& subtitle) : title_(title) {
  body_ = fmt::format("<h1>{}</h1>\n<p class=\"subtitle\">{}</p>\n", plot::escaped(title),
                      plot::escaped(subtitle));
}

void Page::section(const std::string& title, const std::string& words) {
  body_ += fmt::format("<h2>{}</h2>\n<p>{}</p>\n", plot::escaped(title), plot::escaped(words));
}

void Page::picture(const std::string& name, const std::string& svg) {
  body_ += fmt::format("<figure id=\"{}\">\n{}</figure>\n", name, svg);
}

void Page::table(const std::vector<std::vector<std::string>>& rows, std::size_t text_columns) {
  body_ += "<div class=\"wide\"><table>\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    body_ += "<tr>";
    const char* cell = r == 0 ? "th" : "td";
    for (std::size_t c = 0; c < rows[r].size(); ++c)
      body_ += fmt::format("<{0}{1}>{2}</{0}>", cell, c >= text_columns ? " class=\"number\"" : "",
                           plot::escaped(rows[r][c]));
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& rows) {
  body_ += "<table>\n";
  for (const auto& [name, words] : rows)
    body_ += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", plot::escaped(name), plot::escaped(words));
  body_ += "</table>\n";
}

void Page::command(const std::string& line) { body_ += fmt::format("<pre>{}</pre>\n", plot::escaped(line)); }

std::string Page::finish() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n"
      "<meta name=\"viewport\" "
      "content=\"width=device-width\"><style>{}</style></head>\n<body>\n{}</body></html>\n",
      plot::escaped(title_), kStyle, body_);
}

}  // namespace trainer
