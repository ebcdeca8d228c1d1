// SPDX-License-Identifier: BSD-3-Clause
//
// `tutti`: starts jobs on this host, shows what the library would do, lists its settings.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/settings.hpp"
#include "plan.hpp"
#include "run.hpp"

namespace {

void add_settings(CLI::App& app) {
  auto* settings = app.add_subcommand("settings", "List every environment variable that the library reads");
  auto markdown = std::make_shared<bool>(false);
  settings->add_flag("--markdown", *markdown, "As docs/settings.md has it");
  settings->callback([markdown] {
    if (*markdown) {
      fmt::print("| variable | default | meaning |\n| --- | --- | --- |\n");
      for (const tutti::Setting& s : tutti::all_settings())
        fmt::print("| `{}` | {} | {} |\n", s.name, *s.default_value != '\0' ? s.default_value : "(empty)",
                   s.meaning);
      return;
    }
    for (const tutti::Setting& s : tutti::all_settings())
      fmt::print("{}={}   (default: {})\n    {}\n", s.name, tutti::setting_text(s.name),
                 *s.default_value != '\0' ? s.default_value : "empty", s.meaning);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Tutti: collective communication for hosts and GPUs"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tutti 0.1.0 (NCCL API 2.28.9)");
  int exit_code = 0;
  std::vector<std::string> command;
  if (argc > 1 && std::string(argv[1]) == "run") {
    int begin = run_command_begin(argc, argv);
    command.assign(argv + begin, argv + argc);
    argc = begin;
  }
  add_run(app, command, exit_code);
  add_plan(app, exit_code);
  add_settings(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    int code = app.exit(error);
    return code == 0 ? 0 : 2;
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "tutti: {}\n", error.what());
    return 2;
  }
  return exit_code;
}
