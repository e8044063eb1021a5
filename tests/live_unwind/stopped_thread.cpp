// SPDX-License-Identifier: Apache-2.0
#include "stopped_thread.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "core/process/memory.h"

namespace whomap::test {
namespace {

/// Is any thread of the process blocked in read()? man 5 proc_pid_syscall; the number of read is 0.
bool blocked_in_read(pid_t pid) {
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", ignored)) {
    std::ifstream file(task.path() / "syscall");
    std::string word;
    if (file >> word && word == "0") return true;
  }
  return false;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

BlockedChild::BlockedChild(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const std::vector<char*> arguments = pointers(command);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_child_ = in[1];
  from_child_ = out[0];
  for (char byte = 0; ::read(from_child_, &byte, 1) == 1 && byte != '\n';) line_ += byte;
  if (line_.empty()) return;
  while (!blocked_in_read(pid_) && ::waitpid(pid_, nullptr, WNOHANG) == 0) std::this_thread::yield();
}

void BlockedChild::release() const {
  if (::write(to_child_, "\n", 1) != 1) throw std::runtime_error("write");
}

BlockedChild::~BlockedChild() {
  ::close(to_child_);
  ::close(from_child_);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

namespace {

void wait_for_stop(pid_t tid, int& status) {
  while (::waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
    if (WIFEXITED(status) || WIFSIGNALED(status)) throw std::runtime_error("the target ended");
}

StoppedThread copy_of(pid_t tid, std::size_t most) {
  user_regs_struct all{};
  ::ptrace(PTRACE_GETREGS, tid, nullptr, &all);
  StoppedThread result;
  result.registers = {all.rip, all.rsp, all.rbp, all.rbx, all.r12, all.r13, all.r14, all.r15};
  result.stack.address = all.rsp;
  if (const auto maps = read_maps(tid))
    if (const Vma* const vma = find_vma(maps->vmas, all.rsp)) {
      result.stack.bytes.resize(std::min<std::size_t>(most, vma->end - all.rsp));
      result.stack.bytes.resize(read_memory(tid, all.rsp, result.stack.bytes));
    }
  return result;
}

}  // namespace

StoppedThread look_at(pid_t tid, std::size_t most) {
  if (::ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) throw std::runtime_error("PTRACE_SEIZE");
  ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  int status = 0;
  wait_for_stop(tid, status);
  StoppedThread result = copy_of(tid, most);
  ::ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
  return result;
}

StoppedThread look_at_return(pid_t tid, long number, std::size_t most) {
  if (::ptrace(PTRACE_SEIZE, tid, nullptr, PTRACE_O_TRACESYSGOOD) != 0)
    throw std::runtime_error("PTRACE_SEIZE");
  ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  int status = 0;
  wait_for_stop(tid, status);
  for (;;) {
    ::ptrace(PTRACE_SYSCALL, tid, nullptr, nullptr);
    wait_for_stop(tid, status);
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info);
    user_regs_struct all{};
    ::ptrace(PTRACE_GETREGS, tid, nullptr, &all);
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && static_cast<long>(all.orig_rax) == number) break;
  }
  StoppedThread result = copy_of(tid, most);
  ::kill(tid, SIGSTOP);
  ::ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
  return result;
}

Code code_of(pid_t pid) {
  Code code;
  const auto target = Target::open(pid);
  const auto maps = read_maps(pid);
  if (!target || !maps) throw std::runtime_error("cannot read the maps of the target");
  code.modules.update(*target, maps->vmas);
  for (const Vma& vma : maps->vmas)
    if (vma.executable && code.modules.find(vma.start) < 0) code.other.push_back(vma.range());
  return code;
}

}  // namespace whomap::test
