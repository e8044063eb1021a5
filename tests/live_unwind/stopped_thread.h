// SPDX-License-Identifier: Apache-2.0
// A child that blocks in a known call, and what the unwinder needs of it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/capture/call_event.h"
#include "core/elf/module_map.h"

namespace whomap::test {

/// Runs `command`, which must write one line to its standard output and then block in read() on its
/// standard input; the constructor returns when it does. The destructor kills it.
class BlockedChild {
 public:
  explicit BlockedChild(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment = {});
  ~BlockedChild();
  BlockedChild(const BlockedChild&) = delete;
  BlockedChild& operator=(const BlockedChild&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Lets its read() return.
  void release() const;
  /// The line it wrote, empty when it ended instead.
  [[nodiscard]] const std::string& line() const { return line_; }

 private:
  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string line_;
};

/// Registers and stack of `tid` as of now; the thread is stopped by ptrace for that and let go again.
/// The copy reaches from rsp to the end of the mapping, or `most` bytes.
struct StoppedThread {
  Registers registers;
  StackCopy stack;
};
StoppedThread look_at(pid_t tid, std::size_t most = std::size_t{64} << 20);

/// The same at the thread's next return from system call `number`. Its process is left stopped there (job
/// control, SIGSTOP), so that GDB finds it at the same place.
StoppedThread look_at_return(pid_t tid, long number, std::size_t most = std::size_t{64} << 20);

/// Its modules, and its executable memory that is in none.
struct Code {
  ModuleMap modules;
  std::vector<AddressRange> other;
};
Code code_of(pid_t pid);

}  // namespace whomap::test
