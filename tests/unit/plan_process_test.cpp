// SPDX-License-Identifier: Apache-2.0
// Plans of real processes: a forked child changes its own code and waits to be looked at.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "core/plan/make_plan.h"
#include "core/process/memory.h"
#include "core/process/vma.h"

namespace whomap {
namespace {

/// A child that runs `prepare`, says so through a pipe, and waits until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare = [] {}) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      (void)!::write(ready[1], "r", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    (void)!::read(ready[0], &byte, 1);
    ::close(ready[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

/// libc and code without a file: what most of these tests are about; all modules take longer.
PlanOptions only_libc() {
  PlanOptions options;
  options.module_regex = "/libc[.]|^.anon.$";
  return options;
}

Plan plan_of(const Child& child, const PlanOptions& options = only_libc()) {
  auto target = Target::open(child.pid());
  EXPECT_TRUE(target) << to_line(target.error());
  auto maps = read_maps(child.pid());
  EXPECT_TRUE(maps);
  ModuleMap modules;
  modules.update(*target, maps->vmas);
  auto plan = make_plan(*target, modules, options);
  EXPECT_TRUE(plan) << to_line(plan.error());
  return plan ? *plan : Plan{};
}

const Site* site_at_function(const Plan& plan, void* function) {
  const auto address = reinterpret_cast<std::uint64_t>(function);
  const auto found = std::find_if(plan.sites.begin(), plan.sites.end(),
                                  [&](const Site& site) { return site.entry == address; });
  return found == plan.sites.end() ? nullptr : &*found;
}

void* libc(const char* name) {
  return ::dlsym(RTLD_DEFAULT, name);
}

/// Makes the page writable, writes, and leaves it executable only: as hook libraries do, which splits the
/// mapping.
void write_code(void* at, const void* bytes, std::size_t count) {
  const auto page = reinterpret_cast<std::uintptr_t>(at) & ~std::uintptr_t{4095};
  if (::mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) ::_exit(1);
  std::memcpy(at, bytes, count);
  ::mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_EXEC);
}

TEST(PlanProcess, EverySiteIsASystemCallInstructionInMemory) {
  const Child child;
  const Plan plan = plan_of(child, {});
  ASSERT_FALSE(plan.sites.empty());
  std::uint64_t last = 0;
  for (const Site& site : plan.sites) {
    EXPECT_GT(site.syscall_address, last) << "unique and ascending";
    last = site.syscall_address;
    std::array<std::byte, 20> bytes{};
    ASSERT_EQ(read_memory(child.pid(), site.code_address, std::span(bytes).first(site.code.size())),
              site.code.size());
    EXPECT_EQ(std::memcmp(bytes.data(), site.code.data(), site.code.size()), 0);
    if (site.kind == NumberKind::caller_constant) continue;
    EXPECT_EQ(site.return_address, site.syscall_address + 2);
    const std::size_t at = site.syscall_address - site.code_address;
    EXPECT_EQ(site.code[at], 0x0F);
    EXPECT_EQ(site.code[at + 1], 0x05);
  }
}

TEST(PlanProcess, LibcWrappersAreConstantAndSyscallIsADispatcher) {
  const Child child;
  const Plan plan = plan_of(child);
  for (const auto& [name, number] :
       {std::pair("mmap", 9), std::pair("munmap", 11), std::pair("mremap", 25)}) {
    const Site* const site = site_at_function(plan, libc(name));
    ASSERT_NE(site, nullptr) << name;
    EXPECT_EQ(site->kind, NumberKind::constant);
    EXPECT_EQ(site->number, number);
    EXPECT_EQ(site->watch, WatchKind::return_breakpoint);
    EXPECT_EQ(site->symbol, name);
    EXPECT_TRUE(site->proof);
  }
  const Site* const dispatcher = site_at_function(plan, libc("syscall"));
  ASSERT_NE(dispatcher, nullptr);
  EXPECT_EQ(dispatcher->kind, NumberKind::variable);
  EXPECT_TRUE(dispatcher->any_number);
  EXPECT_EQ(dispatcher->condition_at_entry, "$rdi == 9 || $rdi == 11 || $rdi == 25 || $rdi == 12");
  EXPECT_EQ(dispatcher->condition_at_syscall, "$rax == 9 || $rax == 11 || $rax == 25 || $rax == 12");
}

TEST(PlanProcess, OnlyWhatIsAskedFor) {
  const Child child;
  PlanOptions options;
  options.watched = {10};
  options.module_regex = "libc";
  const Plan plan = plan_of(child, options);
  const Site* const site = site_at_function(plan, libc("mprotect"));
  ASSERT_NE(site, nullptr);
  EXPECT_EQ(site->number, 10);
  EXPECT_EQ(site_at_function(plan, libc("mmap")), nullptr);
  for (const Site& each : plan.sites) EXPECT_NE(each.module.find("libc"), std::string::npos);
}

TEST(PlanProcess, PatchedEntryIsSeenAndTheOldInstructionStays) {
  const auto jump_target = reinterpret_cast<std::uint64_t>(libc("getpid"));
  const Child child([&] {
    for (const char* const name : {"mmap", "munmap"}) {
      auto* const entry = static_cast<std::uint8_t*>(libc(name));
      std::array<std::uint8_t, 5> jump{0xE9};
      const auto distance =
          static_cast<std::int32_t>(jump_target - (reinterpret_cast<std::uint64_t>(entry) + 5));
      std::memcpy(&jump[1], &distance, sizeof distance);
      write_code(entry, jump.data(), jump.size());
    }
  });
  const Plan plan = plan_of(child);
  const std::string says = fmt::format("entry was patched at run time (jmp to {:#x})", jump_target);
  for (const char* const name : {"mmap", "munmap"}) {
    const Site* const site = site_at_function(plan, libc(name));
    ASSERT_NE(site, nullptr) << name;
    EXPECT_NE(site->reason.find(says), std::string::npos) << site->reason;
  }
  // glibc 2.36's munmap has its mov in the five bytes that the jump replaced: the number is no longer proven.
  const Site* const munmap_site = site_at_function(plan, libc("munmap"));
  if (munmap_site->kind == NumberKind::variable) {
    EXPECT_NE(munmap_site->reason.find("its number was 11"), std::string::npos) << munmap_site->reason;
  }
}

TEST(PlanProcess, TwelveByteJumpIsSeen) {
  constexpr std::uint64_t target = 0x123456789abc;
  const Child child([&] {
    std::array<std::uint8_t, 12> jump{0x48, 0xB8, 0, 0, 0,    0,
                                      0,    0,    0, 0, 0xFF, 0xE0};  // mov $imm64,%rax; jmp *%rax
    std::memcpy(&jump[2], &target, sizeof target);
    write_code(libc("mmap"), jump.data(), jump.size());
  });
  const Plan plan = plan_of(child);
  const Site* const site = site_at_function(plan, libc("mmap"));
  ASSERT_NE(site, nullptr);
  EXPECT_NE(site->reason.find("jmp to 0x123456789abc"), std::string::npos) << site->reason;
}

TEST(PlanProcess, TextSplitIntoManyMappings) {
  const Child child([] {
    const auto page = reinterpret_cast<std::uintptr_t>(libc("syscall")) & ~std::uintptr_t{4095};
    for (int i = -8; i <= 8; i += 2)
      ::mprotect(reinterpret_cast<void*>(page + static_cast<std::uintptr_t>(i) * 4096), 4096,
                 PROT_READ | PROT_WRITE | PROT_EXEC);
  });
  const Child whole;
  const auto addresses = [](const Plan& plan) {
    std::vector<std::uint64_t> all;
    for (const Site& site : plan.sites) all.push_back(site.syscall_address);
    return all;
  };
  EXPECT_EQ(addresses(plan_of(child)), addresses(plan_of(whole)));
}

TEST(PlanProcess, AnonymousCodeIsFoundAndDataInItIsNotWatched) {
  void* const area =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(area, MAP_FAILED);
  const auto start = reinterpret_cast<std::uint64_t>(area);
  std::memset(area, 0x90, 4096);
  const std::array<std::uint8_t, 8> code{0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xC3};
  std::memcpy(static_cast<std::uint8_t*>(area) + 128, code.data(), code.size());
  const std::array<std::uint8_t, 6> immediate{0xB8, 0x0F, 0x05, 0, 0, 0xC3};  // mov $0x50f,%eax; ret
  std::memcpy(static_cast<std::uint8_t*>(area) + 1024, immediate.data(), immediate.size());
  const Child child;
  const Plan plan = plan_of(child);
  ::munmap(area, 8192);
  std::vector<const Site*> found;
  for (const Site& site : plan.sites)
    if (site.syscall_address >= start && site.syscall_address < start + 8192) found.push_back(&site);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]->syscall_address, start + 133);
  EXPECT_EQ(found[0]->module, "[anon]");
  EXPECT_EQ(found[0]->number, 9);
  EXPECT_EQ(found[0]->watch, WatchKind::return_breakpoint);
}

TEST(PlanProcess, LookingDoesNotPageIn) {
  const Child child;
  (void)plan_of(child);  // the vDSO and the pages of the child's first look
  const auto before = read_status(child.pid());
  (void)plan_of(child);
  const auto after = read_status(child.pid());
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->vm_rss, after->vm_rss);
}

TEST(PlanProcess, RebaseOnTheSameAndAnotherProcess) {
  const Child child;
  const Child other;
  const Plan plan = plan_of(child);
  const auto rebased = [&](const Child& to, const Plan& from) {
    auto target = Target::open(to.pid());
    ModuleMap modules;
    modules.update(*target, read_maps(to.pid())->vmas);
    return rebase_plan(from, *target, modules);
  };
  const auto same = rebased(child, plan);
  ASSERT_TRUE(same) << to_line(same.error());
  EXPECT_EQ(to_json(*same).dump(), to_json(plan).dump());
  const auto moved = rebased(other, plan);
  ASSERT_TRUE(moved) << to_line(moved.error());
  EXPECT_EQ(moved->target.pid, other.pid());

  Plan changed = plan;
  changed.sites[0].code[0] ^= 1U;
  const auto refused = rebased(other, changed);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::plan_mismatch);
  changed = plan;
  const auto watched = std::find_if(changed.sites.begin(), changed.sites.end(),
                                    [](const Site& each) { return each.stub.possible; });
  ASSERT_NE(watched, changed.sites.end());
  const StubRoom room = watched->stub;
  watched->stub.address -= 3;
  watched->stub.code.insert(watched->stub.code.begin(), 3, 0x90);
  const auto own_room = rebased(child, changed);
  ASSERT_TRUE(own_room) << to_line(own_room.error());
  EXPECT_EQ(own_room->sites[watched->id].stub.address, room.address);
  EXPECT_EQ(own_room->sites[watched->id].stub.code, room.code);
  watched->numbers.push_back(77);
  EXPECT_EQ(rebased(child, changed).error().code, ErrorCode::plan_mismatch);
  watched->watch = WatchKind::none;  // what is not watched needs no proof
  EXPECT_TRUE(rebased(child, changed));
  changed = plan;
  changed.sites.push_back(plan.sites[static_cast<std::size_t>(watched->id)]);
  EXPECT_EQ(rebased(child, changed).error().code, ErrorCode::plan_mismatch);
  changed = plan;
  changed.sites[0].build_id = "00";
  EXPECT_EQ(rebased(other, changed).error().code, ErrorCode::plan_mismatch);
}

}  // namespace
}  // namespace whomap
