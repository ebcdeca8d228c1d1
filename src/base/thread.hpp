// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <thread>

namespace tutti {

// A thread of the library's own, under a name (at most 15 characters) that debuggers and `top -H` show.
// Signals that are sent to the process are not for it, but for the application's threads: a handler of the
// application's must not find itself in the middle of the library. Faults and the profiler's timer do reach
// it.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tutti
