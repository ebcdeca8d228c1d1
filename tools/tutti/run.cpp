// SPDX-License-Identifier: BSD-3-Clause
//
// The launcher serves the rendezvous itself and hands its id down in the environment, so that no port need be
// agreed on and nothing is in the file system.
#include "run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "labels.hpp"
#include "nccl.h"

namespace {

using Clock = std::chrono::steady_clock;

struct RunOptions {
  int ranks = 1;
  double grace = 5;
  bool label = false;
  std::vector<std::string> command;
};

std::string unique_id_in_hex() {
  ncclUniqueId id{};
  if (ncclGetUniqueId(&id) != ncclSuccess) throw CLI::RuntimeError(ncclGetLastError(nullptr), 2);
  std::string text;
  for (char c : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

class Job {
 public:
  explicit Job(const RunOptions& options) : options_(options), labels_(options.ranks) {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &old_mask_);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Job() {
    if (signals_ >= 0) close(signals_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run() {
    // All ranks are on this host: nobody else need be listened to.
    setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    std::string id = options_.ranks > 1 ? unique_id_in_hex() : "";
    for (int rank = 0; rank < options_.ranks && !starting_failed_; ++rank) start(rank, id);
    while (!children_.empty()) {
      std::vector<pollfd> waiting{{signals_, POLLIN, 0}};
      labels_.add_to(waiting);
      poll(waiting.data(), waiting.size(), wait_milliseconds());
      labels_.pass_on();
      forward_signals();
      reap();
      end_stragglers();
    }
    labels_.finish();
    if (!labels_.failure().empty()) {
      fmt::print(stderr, "tutti run: the ranks' output could not be written: {}\n", labels_.failure());
      if (exit_code_ == 0) exit_code_ = 2;
    }
    return exit_code_;
  }

 private:
  void start(int rank, const std::string& id) {
    std::array<int, 2> failure{};
    if (pipe2(failure.data(), O_CLOEXEC) != 0) throw CLI::RuntimeError("no pipe", 2);
    tutti::FileDescriptor output, errors;
    if (options_.label) {
      output = labels_.open(rank, 1);
      errors = labels_.open(rank, 2);
    }
    pid_t launcher = getpid();
    pid_t child = fork();
    if (child < 0) {
      fmt::print(stderr, "tutti run: rank {} could not be started: {}\n", rank, std::strerror(errno));
      fail_with(2);
      return;
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that is killed leaves nobody behind
      if (getppid() != launcher) _exit(1);
      sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
      if (output) dup2(output.get(), 1);
      if (errors) dup2(errors.get(), 2);
      exec(rank, id);
      int error = errno;
      (void)!write(failure[1], &error, sizeof error);
      _exit(127);
    }
    close(failure[1]);
    int error = 0;
    if (read(failure[0], &error, sizeof error) == sizeof error) {
      fmt::print(stderr, "tutti run: cannot execute \"{}\": {}\n", options_.command[0], std::strerror(error));
      starting_failed_ = true;
    }
    close(failure[0]);
    children_[child] = rank;
  }

  void exec(int rank, const std::string& id) {
    auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    std::string size = std::to_string(options_.ranks);
    set("RANK", std::to_string(rank));
    set("LOCAL_RANK", std::to_string(rank));
    set("WORLD_SIZE", size);
    set("LOCAL_WORLD_SIZE", size);
    if (!id.empty()) set("TUTTI_UNIQUE_ID", id);
    std::vector<char*> arguments;
    for (const std::string& argument : options_.command)
      arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
  }

  int wait_milliseconds() const {
    if (!ending_) return -1;
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return static_cast<int>(std::max<long>(0, left)) + 1;
  }

  void forward_signals() {
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == sizeof info) {
      auto signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      // What a terminal sends goes to the whole foreground group: the ranks have it already.
      if (info.ssi_code != SI_KERNEL)
        for (auto& [pid, rank] : children_) kill(pid, signal);
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT)
        fail_with(128 + signal);
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      auto child = children_.find(pid);
      if (child == children_.end()) continue;
      int rank = child->second;
      children_.erase(child);
      if (WIFSIGNALED(status)) {
        if (!ending_)
          fmt::print(stderr, "tutti run: rank {} (pid {}) was ended by signal {} ({})\n", rank, pid,
                     WTERMSIG(status), strsignal(WTERMSIG(status)));
        fail_with(128 + WTERMSIG(status));
      } else if (WEXITSTATUS(status) != 0) {
        if (!ending_)
          fmt::print(stderr, "tutti run: rank {} (pid {}) ended with exit code {}\n", rank, pid,
                     WEXITSTATUS(status));
        fail_with(WEXITSTATUS(status));
      }
    }
  }

  // The first failure is the job's exit code. The other ranks get some time to find out for themselves, which
  // gives better messages than being killed.
  void fail_with(int code) {
    if (exit_code_ == 0) exit_code_ = code;
    if (ending_) return;
    ending_ = true;
    deadline_ = Clock::now() + std::chrono::milliseconds(static_cast<long>(options_.grace * 1000));
  }

  void end_stragglers() {
    if (!ending_ || Clock::now() < deadline_) return;
    for (auto& [pid, rank] : children_) kill(pid, terminated_ ? SIGKILL : SIGTERM);
    terminated_ = true;
    deadline_ = Clock::now() + std::chrono::seconds(2);
  }

  RunOptions options_;
  Labels labels_;
  sigset_t old_mask_{};
  int signals_ = -1;
  std::map<pid_t, int> children_;
  int exit_code_ = 0;
  bool starting_failed_ = false;
  bool ending_ = false, terminated_ = false;
  Clock::time_point deadline_;
};

}  // namespace

void add_run(CLI::App& app, const std::vector<std::string>& command, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  auto* run =
      app.add_subcommand("run", "Start N processes of one job on this host: tutti run -n N program ...");
  run->footer(
      "Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and TUTTI_UNIQUE_ID in its "
      "environment,\n"
      "and NCCL_SOCKET_IFNAME is =lo unless it is set, since all ranks are on this host.\n"
      "tutti::World (tutti/world.hpp) and the *_perf programs join the job by them. Signals are passed on. "
      "When a\n"
      "rank fails, the others get --grace seconds to notice, then they are ended; the exit code is that of "
      "the\n"
      "first that failed (128 + number for a signal).\n\n"
      "Example: tutti run -n 4 build/bench/all_reduce_perf -b 8 -e 64M -f 8");
  run->add_option("-n,--ranks", options->ranks, "Number of processes")
      ->required()
      ->check(CLI::Range(1, 4096));
  run->add_option("--grace", options->grace, "Seconds between the first failure and ending the rest")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  run->add_flag("-l,--label", options->label, "Write the rank in front of each line of output: [2] hello");
  run->callback([options, command, &exit_code] {
    if (command.empty()) throw CLI::RequiredError("the program to run");
    options->command = command;
    exit_code = Job(*options).run();
  });
}

int run_command_begin(int argc, char** argv) {
  int at = 2;
  while (at < argc && argv[at][0] == '-') {
    std::string option = argv[at++];
    if (option == "--") break;
    if (option == "-n" || option == "--ranks" || option == "--grace") ++at;
  }
  return std::min(at, argc);
}
