// SPDX-License-Identifier: Apache-2.0
#include "core/process/permission.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {
namespace {

constexpr std::uint64_t cap_sys_ptrace = std::uint64_t{1} << 19;  // include/uapi/linux/capability.h

// /proc/sys/kernel/yama/ptrace_scope (Documentation/admin-guide/LSM/Yama.rst)
constexpr int yama_children_only = 1;
constexpr int yama_capability_only = 2;
constexpr int yama_no_attach = 3;

std::optional<int> read_yama_scope() {
  const auto text = read_file("/proc/sys/kernel/yama/ptrace_scope");
  if (!text) return std::nullopt;
  int scope = 0;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), scope);
  return problem == std::errc{} ? std::optional(scope) : std::nullopt;
}

/// The files of a process that is not dumpable belong to root, whoever runs it (man 5 proc).
std::optional<bool> read_dumpable(pid_t pid, const ProcessStatus& status) {
  struct stat facts {};
  if (::stat(fmt::format("/proc/{}/maps", pid).c_str(), &facts) != 0) return std::nullopt;
  if (!status.effective_uid || *status.effective_uid == 0) return std::nullopt;
  return facts.st_uid == *status.effective_uid;
}

}  // namespace

AccessFacts read_access_facts(const Target& target) {
  AccessFacts facts;
  // First: of a process that ends meanwhile, the status that is read after it says so.
  facts.attach_access =
      UniqueFd(::open(fmt::format("/proc/{}/mem", target.pid()).c_str(), O_RDONLY | O_CLOEXEC)).valid();
  if (auto status = read_status(target.pid())) facts.target = std::move(*status);
  if (facts.target.tracer_pid.value_or(0) > 0)
    if (const auto tracer = read_status(*facts.target.tracer_pid)) facts.tracer_name = tracer->name;
  facts.own_uid = ::geteuid();
  if (const auto own = read_status(::getpid()))
    facts.own_capabilities = own->effective_capabilities.value_or(0);
  facts.yama_scope = read_yama_scope();
  facts.dumpable = read_dumpable(target.pid(), facts.target);
  return facts;
}

std::optional<Error> attach_obstacle(const AccessFacts& facts) {
  const ProcessStatus& target = facts.target;
  const std::string who = fmt::format("process {} ({})", target.tgid.value_or(0), target.name);
  const auto obstacle = [](ErrorCode code, std::string happened, std::string remedy) {
    return Error{code, std::move(happened), std::move(remedy)};
  };
  if (target.state == 'Z' || target.state == 'X')
    return obstacle(ErrorCode::process_zombie, who + " is a zombie", "it has ended");
  if (target.tracer_pid.value_or(0) > 0)
    return obstacle(
        ErrorCode::already_traced,
        fmt::format("{} is already traced by {} (pid {})", who,
                    facts.tracer_name.empty() ? "another process" : facts.tracer_name, *target.tracer_pid),
        "a process can have one tracer: end that one first");
  if (target.state == 'T')
    return obstacle(ErrorCode::process_stopped, who + " is stopped by job control",
                    fmt::format("let it run first: kill -CONT {}", target.tgid.value_or(0)));
  if (facts.attach_access && facts.yama_scope.value_or(0) != yama_no_attach) return std::nullopt;

  const bool privileged = (facts.own_capabilities & cap_sys_ptrace) != 0;
  if (facts.yama_scope == yama_no_attach)
    return obstacle(ErrorCode::yama, "Yama forbids every attach (kernel.yama.ptrace_scope is 3)",
                    "nothing but a reboot with another setting changes that");
  if (!privileged && target.real_uid &&
      (*target.real_uid != facts.own_uid || target.effective_uid.value_or(*target.real_uid) != facts.own_uid))
    return obstacle(
        ErrorCode::other_user,
        fmt::format("{} belongs to user {}, whomap runs as user {}", who, *target.real_uid, facts.own_uid),
        "run whomap as root (sudo) or as that user");
  if (!privileged && facts.dumpable == false)
    return obstacle(ErrorCode::missing_capability,
                    who + " is not dumpable (set-user-id, or prctl PR_SET_DUMPABLE)",
                    "run whomap as root (sudo): CAP_SYS_PTRACE is needed");
  if (!privileged && (target.effective_capabilities.value_or(0) & ~facts.own_capabilities) != 0)
    return obstacle(ErrorCode::missing_capability, who + " has capabilities that whomap has not",
                    "run whomap with CAP_SYS_PTRACE; in a container: --cap-add SYS_PTRACE");
  if (!privileged && facts.yama_scope == yama_children_only)
    return obstacle(ErrorCode::yama, "Yama lets only a parent attach (kernel.yama.ptrace_scope is 1)",
                    "run whomap as root (sudo), or: sysctl kernel.yama.ptrace_scope=0");
  if (!privileged && facts.yama_scope == yama_capability_only)
    return obstacle(ErrorCode::yama, "Yama lets only CAP_SYS_PTRACE attach (kernel.yama.ptrace_scope is 2)",
                    "run whomap as root (sudo)");
  // The Vm lines go with the memory, at the beginning of exit (man 5 proc_pid_status).
  if (!target.fields.contains("VmSize"))
    return obstacle(ErrorCode::process_ended, who + " is ending", "there is nothing left to look at");
  return obstacle(
      ErrorCode::not_permitted,
      fmt::format("the kernel refuses access to {}, and none of the reasons known to whomap applies", who),
      "look for a security module (AppArmor, SELinux), or another user namespace (container)");
}

}  // namespace whomap
