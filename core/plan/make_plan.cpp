// SPDX-License-Identifier: Apache-2.0
#include "core/plan/make_plan.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <re2/re2.h>

#include "core/plan/callers.h"
#include "core/plan/code_sites.h"
#include "core/plan/site_builder.h"
#include "core/plan/stub_room.h"
#include "core/process/own_memory.h"
#include "core/process/syscalls.h"
#include "core/process/vma.h"

namespace whomap {
namespace {

struct LoadedCode {
  ModuleCode code;
  std::shared_ptr<const Image> image;  ///< nullptr: memory without a file
};

/// What the kernel would run: the header of /proc/PID/exe.
Result<void> check_machine(const Target& target) {
  const std::string path = fmt::format("/proc/{}/exe", target.pid());
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    const int why = errno;
    if (auto alive = target.check(); !alive) return alive;
    return fail(why == EACCES || why == EPERM ? ErrorCode::not_permitted : ErrorCode::input_unreadable,
                fmt::format("cannot read {}", path), {}, why);
  }
  Elf64_Ehdr header{};
  if (::pread(fd.get(), &header, sizeof header, 0) < static_cast<ssize_t>(EI_NIDENT + 4) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return fail(ErrorCode::unsupported_target,
                fmt::format("the program of process {} is not an ELF file", target.pid()));
  if (header.e_machine != EM_X86_64 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return fail(
        ErrorCode::unsupported_target,
        fmt::format("process {} runs a {}-bit program for ELF machine {}", target.pid(),
                    header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32, header.e_machine),
        "only 64-bit x86-64 processes can be traced; 'whomap plan --elf FILE' also reads AArch64 files");
  return {};
}

/// RE2, because paths are the target's: its time is linear in them. nullptr for an empty pattern.
Result<std::shared_ptr<const RE2>> compile(const std::string& pattern) {
  if (pattern.empty()) return std::shared_ptr<const RE2>{};
  auto compiled = std::make_shared<const RE2>(pattern, RE2::Quiet);
  if (!compiled->ok())
    return fail(ErrorCode::usage,
                fmt::format("'{}' is not a regular expression ({})", pattern, compiled->error()),
                "write it in RE2 syntax");
  return std::shared_ptr<const RE2>(std::move(compiled));
}

std::vector<std::int64_t> watched_numbers(const PlanOptions& options, const InstructionSet& set) {
  std::vector<std::int64_t> numbers;
  for (const MemorySyscall& call : memory_syscalls) {
    const bool asked = options.watched.empty() ? call.by_default
                                               : std::find(options.watched.begin(), options.watched.end(),
                                                           call.x86_64) != options.watched.end();
    if (!asked) continue;
    if (&set == &x86_64)
      numbers.push_back(call.x86_64);
    else if (call.aarch64)
      numbers.push_back(*call.aarch64);
  }
  return numbers;
}

/// The function that begins at `entry` and passes its parameter on to a system call or another dispatcher.
Dispatcher dispatcher_at(const ModuleCode& code, std::uint64_t entry, const std::string& name,
                         const Value& parameter) {
  Dispatcher dispatcher{entry, name.empty() ? fmt::format("{:#x}", entry) : name, {}, parameter};
  if (code.functions() != nullptr)
    for (const std::string_view alias : code.functions()->names_at(entry - code.bias()))
      dispatcher.aliases.emplace_back(alias);
  return dispatcher;
}

bool is_parameter(const Value& value) {
  return value.kind() == Value::Kind::entry_register || value.kind() == Value::Kind::entry_stack;
}

/// Callers of the dispatchers, and of functions that only pass their own parameter on to one (Go's Syscall
/// and RawSyscall6 over Syscall6).
void add_callers(Plan& plan, const std::vector<LoadedCode>& loaded, std::vector<Dispatcher> dispatchers) {
  constexpr std::size_t most_dispatchers = 32;  // each costs a pass over the modules that import it
  for (std::size_t i = 0; i < dispatchers.size(); ++i) {
    for (const LoadedCode& each : loaded) {
      for (const DispatcherCall& call : find_dispatcher_calls(each.code, each.image.get(), dispatchers[i])) {
        if (auto site = site_of(each.code, call, plan.watched)) plan.sites.push_back(std::move(*site));
        if (!is_parameter(call.number) || !call.bounds.entry_known) continue;
        Dispatcher wrapper = dispatcher_at(each.code, call.bounds.range.start, call.bounds.name, call.number);
        const bool known = std::any_of(dispatchers.begin(), dispatchers.end(), [&](const Dispatcher& other) {
          return other.entry == wrapper.entry && other.parameter.same_origin(wrapper.parameter);
        });
        if (!known && dispatchers.size() < most_dispatchers)
          dispatchers.push_back(std::move(wrapper));
        else if (!known)
          plan.notes.push_back(
              fmt::format("more than {} functions pass a number on; callers of {} were not looked for",
                          most_dispatchers, wrapper.name));
      }
    }
  }
}

/// The sites of all this code, callers of dispatchers included; ids are given and addresses are unique.
void add_sites(Plan& plan, std::vector<LoadedCode>& loaded) {
  std::size_t rejected = 0;
  std::vector<Dispatcher> dispatchers;
  for (LoadedCode& each : loaded) {
    const CodeSites code_sites = find_code_sites(each.code);
    rejected += code_sites.rejected;
    std::vector<CodeSite> planned;
    const std::size_t first = plan.sites.size();
    for (const CodeSite& found : code_sites.sites) {
      auto site = site_of(each.code, found, plan.watched);
      if (!site) continue;
      planned.push_back(found);
      if (site->entry != 0 && is_parameter(found.number))
        dispatchers.push_back(dispatcher_at(each.code, site->entry, site->symbol, found.number));
      plan.sites.push_back(std::move(*site));
    }
    std::vector<StubRoom> rooms = find_stub_rooms(each.code, planned);
    for (std::size_t i = 0; i < rooms.size(); ++i) plan.sites[first + i].stub = std::move(rooms[i]);
  }
  add_callers(plan, loaded, std::move(dispatchers));

  std::stable_sort(plan.sites.begin(), plan.sites.end(),
                   [](const Site& a, const Site& b) { return a.syscall_address < b.syscall_address; });
  plan.sites.erase(
      std::unique(plan.sites.begin(), plan.sites.end(),
                  [](const Site& a, const Site& b) { return a.syscall_address == b.syscall_address; }),
      plan.sites.end());
  for (std::size_t i = 0; i < plan.sites.size(); ++i) plan.sites[i].id = static_cast<std::uint32_t>(i);
  if (rejected != 0)
    plan.notes.push_back(
        fmt::format("{} places hold the bytes of a system call instruction inside other instructions or "
                    "data, and were not taken for one",
                    rejected));
}

bool is_kernel_code(const std::string& name) {
  return name == "[vdso]" || name == "[vsyscall]";
}

}  // namespace

Result<void> check(const PlanOptions& options) {
  if (auto pattern = compile(options.module_regex); !pattern) return tl::make_unexpected(pattern.error());
  return {};
}

Result<Plan> make_plan(const Target& target, const ModuleMap& modules, const PlanOptions& options) {
  if (auto supported = check_machine(target); !supported) return tl::make_unexpected(supported.error());
  auto wanted = compile(options.module_regex);
  if (!wanted) return tl::make_unexpected(wanted.error());
  const auto is_wanted = [&](const std::string& path) {
    return *wanted == nullptr || RE2::PartialMatch(path, **wanted);
  };

  Plan plan;
  plan.target = target.identity();
  plan.page_size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  plan.watched = watched_numbers(options, x86_64);

  auto pages = PageMap::open(target.pid(), plan.page_size);
  if (!pages) {
    if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
    plan.notes.push_back(
        fmt::format("{}: code that was changed at run time and code without a file are not seen",
                    to_line(pages.error())));
  }
  const PageMap* const known_pages = pages ? &*pages : nullptr;

  std::vector<LoadedCode> loaded;
  for (const Module& module : modules.modules()) {
    if (module.executable.empty() || !is_wanted(module.path)) continue;
    if (is_kernel_code(module.path)) {
      plan.notes.push_back(
          fmt::format("{} is the kernel's code, not looked at: it maps no memory", module.path));
      continue;
    }
    if (module.image->machine() != EM_X86_64 || !module.image->is_64bit()) {
      plan.notes.push_back(fmt::format("{} is not x86-64 code (ELF machine {}), not looked at", module.path,
                                       module.image->machine()));
      continue;
    }
    loaded.push_back({ModuleCode(CodeView::of_module(target.pid(), module, known_pages),
                                 std::make_shared<const FunctionTable>(FunctionTable::read(module.image)),
                                 x86_64, module.bias, module.path, module.image->build_id()),
                      module.image});
  }
  if (known_pages != nullptr) {
    for (const UnreadableModule& module : modules.unreadable()) {
      if (!is_wanted(module.path)) continue;
      plan.notes.push_back(
          fmt::format("{}: {}; only its pages in memory were looked at, without function boundaries",
                      module.path, module.reason));
      loaded.push_back({ModuleCode(CodeView::of_memory(target.pid(), module.ranges, *known_pages), nullptr,
                                   x86_64, 0, module.path, {}),
                        nullptr});
    }
    auto maps = read_maps(target.pid());
    if (!maps) return tl::make_unexpected(maps.error());
    std::vector<AddressRange> anonymous;
    for (const Vma& vma : maps->vmas)
      if (vma.executable && !vma.file_backed() && !is_kernel_code(vma.name) &&
          !is_own_code(target.pid(), vma))
        anonymous.push_back(vma.range());
    if (!anonymous.empty() && is_wanted("[anon]"))
      loaded.push_back({ModuleCode(CodeView::of_memory(target.pid(), anonymous, *known_pages), nullptr,
                                   x86_64, 0, "[anon]", {}),
                        nullptr});
  }
  add_sites(plan, loaded);
  for (const LoadedCode& each : loaded)
    if (each.code.view().unreadable_bytes() != 0)
      plan.notes.push_back(fmt::format("{}: {} bytes of code could not be read", each.code.path(),
                                       each.code.view().unreadable_bytes()));
  if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
  return plan;
}

Result<Plan> make_plan(std::shared_ptr<const Image> image, const PlanOptions& options) {
  const InstructionSet* const set = instruction_set(image->machine());
  if (set == nullptr || !image->is_64bit())
    return fail(ErrorCode::unsupported_target,
                fmt::format("{} is {}-bit code for ELF machine {}", image->path(),
                            image->is_64bit() ? 64 : 32, image->machine()),
                "x86-64 and AArch64 files are read");
  Plan plan;
  plan.machine = set == &x86_64 ? "x86_64" : "aarch64";
  plan.watched = watched_numbers(options, *set);
  std::vector<LoadedCode> loaded;
  loaded.push_back(
      {ModuleCode(CodeView::of_file(image), std::make_shared<const FunctionTable>(FunctionTable::read(image)),
                  *set, 0, image->path(), image->build_id()),
       image});
  add_sites(plan, loaded);
  plan.notes.push_back("plan of a file: calls to and from other files are not known");
  return plan;
}

}  // namespace whomap
