// SPDX-License-Identifier: Apache-2.0
#include "core/stub/installation.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "core/process/memory.h"
#include "core/process/own_memory.h"
#include "core/process/syscalls.h"
#include "core/process/vma.h"
#include "core/stub/call_filters.h"
#include "core/stub/foreign_stubs.h"
#include "core/stub/placement.h"
#include "core/stub/removal.h"
#include "core/stub/stub_code.h"

namespace whomap {
namespace {

constexpr std::array<std::uint8_t, 2> system_call{0x0F, 0x05};
/// What is looked for in one piece: code for the most sites seen so far is a tenth of it.
constexpr std::uint64_t area_limit = std::uint64_t{1} << 19;

std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

Result<std::string> new_nonce() {
  std::array<std::uint8_t, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return fail(ErrorCode::kernel_feature, "getrandom failed", {}, errno);
  return fmt::format("{:02x}", fmt::join(random, ""));
}

/// One code area: what will lie there, and whether it lies there already.
struct Area {
  std::uint64_t address = 0;
  std::vector<std::uint8_t> bytes;
  bool is_there = false;
};

struct Draft {
  std::vector<Area> areas;
  std::uint64_t data = 0;
  bool data_is_there = false;
  std::optional<CallRoom> padding;  ///< for the calls before code of ours is there
  StubState state;
  std::vector<SiteWithoutStub> left_out;
};

class Drafter {
 public:
  Drafter(const Target& target, const Plan& plan, StubEngine& engine, const std::optional<StubState>& old)
      : target_(target), plan_(plan), engine_(engine), old_(old) {}

  Result<Draft> draft() {
    const auto maps = read_maps(target_.pid());
    if (!maps) return tl::make_unexpected(maps.error());
    choose_sites(maps->vmas);
    std::vector<std::uint64_t> addresses;
    for (const Site* site : sites_) addresses.push_back(site->syscall_address);
    const Placement placement = find_places(
        maps->vmas, addresses, own_mapping_offset() + engine_.own_mapping_size(), plan_.page_size);
    for (const std::size_t index : placement.unreachable)
      leave_out(*sites_[index], "no free memory within a jump's reach");
    if (placement.neighbourhoods.empty()) return nothing_possible();

    if (auto chosen = choose_data(placement); !chosen) return tl::make_unexpected(chosen.error());
    engine_.use_place(placement.neighbourhoods.front().place + own_mapping_offset());
    for (const Neighbourhood& each : placement.neighbourhoods)
      if (auto built = add_area(each); !built) return tl::make_unexpected(built.error());
    if (draft_.state.jumps.empty()) return nothing_possible();
    finish_state(maps->vmas);
    return std::move(draft_);
  }

 private:
  void leave_out(const Site& site, std::string reason) {
    draft_.left_out.push_back({site.id, std::move(reason)});
  }

  void choose_sites(const std::vector<Vma>& vmas) {
    for (const Site& site : plan_.sites) {
      if (site.watch == WatchKind::none) continue;
      const Vma* const vma = find_vma(vmas, site.stub.address);
      if (!site.stub.possible)
        leave_out(site, site.stub.reason);
      else if (vma == nullptr || !vma->executable)
        leave_out(site, "no code is mapped there any more");
      else if (vma->shared)
        leave_out(site, "the code is mapped shared: writing to it would change the file");
      else
        sites_.push_back(&site);
    }
  }

  [[nodiscard]] tl::unexpected<Error> nothing_possible() const {
    return fail(ErrorCode::unsupported_target,
                fmt::format("no system call of process {} has room for a stub{}", target_.pid(),
                            draft_.left_out.empty() ? "" : ": " + draft_.left_out.front().reason));
  }

  /// Memory of that kind from earlier installations.
  [[nodiscard]] std::vector<PlacedMemory> old_memory(const char* kind) const {
    std::vector<PlacedMemory> found;
    if (!old_) return found;
    for (const PlacedMemory& each : old_->memory)
      if (each.kind == kind) found.push_back(each);
    return found;
  }

  /// In the first place, in this order, with room between them: code, data, what the engine maps itself.
  [[nodiscard]] std::uint64_t own_mapping_offset() const {
    constexpr std::uint64_t room = 16;
    return round_up(area_limit + plan_.page_size + engine_.data_size(), plan_.page_size) +
           room * plan_.page_size;
  }

  /// The data of all areas lies behind the first one.
  Result<void> choose_data(const Placement& placement) {
    draft_.data = placement.neighbourhoods.front().place + area_limit + plan_.page_size;
    for (const PlacedMemory& each : old_memory("data"))
      if (each.size >= engine_.data_size() && engine_.can_use_again(target_.pid(), each.address)) {
        draft_.data = each.address;
        draft_.data_is_there = true;
      }
    if (old_) {
      draft_.state.nonce = old_->nonce;
      return {};
    }
    auto nonce = new_nonce();
    if (!nonce) return tl::make_unexpected(nonce.error());
    draft_.state.nonce = *nonce;
    return {};
  }

  /// Where the very same code lies already, it is used again; else a new area.
  Result<void> add_area(const Neighbourhood& neighbourhood) {
    const std::size_t jumps = draft_.state.jumps.size();
    const std::size_t left = draft_.left_out.size();
    const std::size_t traps = engine_.traps().size();
    for (const PlacedMemory& old : old_memory("code")) {
      auto area = build(neighbourhood, old.address);
      if (area && area->bytes.size() <= old.size &&
          read_bytes(target_.pid(), old.address, area->bytes.size()) == area->bytes) {
        area->is_there = true;
        draft_.areas.push_back(std::move(*area));
        return {};
      }
      draft_.state.jumps.resize(jumps);
      draft_.left_out.resize(left);
      engine_.keep_traps(traps);
    }
    auto area = build(neighbourhood, neighbourhood.place);
    if (!area) return tl::make_unexpected(area.error());
    if (area->bytes.size() > area_limit)
      return fail(ErrorCode::unsupported_target, "the stubs for so many sites do not fit");
    draft_.areas.push_back(std::move(*area));
    return {};
  }

  Result<Area> build(const Neighbourhood& neighbourhood, std::uint64_t address) {
    CodeBuffer code(address);
    code.append(own_header(draft_.state.nonce));
    if (auto begun = engine_.begin(code, draft_.data); !begun) return tl::make_unexpected(begun.error());
    for (const std::size_t index : neighbourhood.served) {
      const std::size_t traps = engine_.traps().size();
      auto jump = append_stub(code, *sites_[index], engine_);
      if (jump) {
        draft_.state.jumps.push_back(std::move(*jump));
        continue;
      }
      engine_.keep_traps(traps);
      leave_out(*sites_[index], jump.error().happened);
    }
    code.append(std::vector<std::uint8_t>(own_call_rooms * call_room_size, 0));
    return Area{address, code.bytes(), false};
  }

  void finish_state(const std::vector<Vma>& vmas) {
    StubState& state = draft_.state;
    state.target = target_.identity();
    state.data = draft_.data;
    if (old_) {
      state.memory = old_->memory;
      state.carried = old_->carried;
    }
    for (const Area& area : draft_.areas)
      if (!area.is_there)
        state.memory.push_back({area.address, round_up(area.bytes.size(), plan_.page_size), "code"});
    if (!draft_.data_is_there && engine_.data_size() != 0)
      state.memory.push_back({draft_.data, engine_.data_size(), "data"});
    for (const TrapPoint& trap : engine_.traps())
      for (const Area& area : draft_.areas)
        if (trap.address >= area.address && trap.address < area.address + area.bytes.size())
          state.traps.push_back(trap);
    const Area& first = draft_.areas.front();
    state.own_rooms = first.address + first.bytes.size() - own_call_rooms * call_room_size;
    // One that is still in use, since a dead tracer's time, is not looked for again, and not used.
    if (old_) state.padding = old_->padding;
    if (!first.is_there && state.padding.address == 0) {
      draft_.padding = find_padding(target_.pid(), vmas);
      state.padding = draft_.padding.value_or(CallRoom{});
    }
    for (const Site* site : sites_)
      if (site->id == state.jumps.front().site) state.syscall_address = site->syscall_address;
  }

  const Target& target_;
  const Plan& plan_;
  StubEngine& engine_;
  const std::optional<StubState>& old_;
  std::vector<const Site*> sites_;
  Draft draft_;
};

Result<void> map_at(RemoteCalls& calls, std::uint64_t address, std::uint64_t size, int protection) {
  const auto result =
      calls.call(SYS_mmap, {address, size, static_cast<std::uint64_t>(protection),
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, ~std::uint64_t{0}, 0});
  if (!result) return tl::make_unexpected(result.error());
  if (*result == address) return {};
  const bool refused = is_syscall_error(*result);
  return fail(ErrorCode::unsupported_target,
              fmt::format("the target cannot map {} bytes at {:#x} for stubs", size, address),
              refused ? "" : "the kernel is older than 4.17 and does not know MAP_FIXED_NOREPLACE",
              refused ? static_cast<int>(-static_cast<std::int64_t>(*result)) : 0);
}

bool is_as_planned(const Target& target, const Plan& plan, const PlacedJump& jump) {
  const auto site = std::find_if(plan.sites.begin(), plan.sites.end(),
                                 [&](const Site& each) { return each.id == jump.site; });
  std::vector<std::uint8_t> expected = site->stub.code;
  expected.insert(expected.end(), system_call.begin(), system_call.end());
  return read_bytes(target.pid(), jump.address, expected.size()) == expected;
}

/// The jumps, last of all. What was changed since the plan was made is left out.
Result<void> write_jumps(const Target& target, const Plan& plan, Standstill& stillness, Draft& draft) {
  std::vector<PlacedJump>& jumps = draft.state.jumps;
  std::erase_if(jumps, [&](const PlacedJump& jump) {
    if (is_as_planned(target, plan, jump)) return false;
    draft.left_out.push_back({jump.site, "the code was changed by somebody else since the plan was made"});
    return true;
  });
  for (std::size_t i = 0; i < jumps.size(); ++i) {
    if (stillness.write(jumps[i].address, jumps[i].jump)) continue;
    const int why = errno;
    for (std::size_t j = 0; j <= i; ++j) stillness.write(jumps[j].address, jumps[j].original);
    if (auto alive = target.check(); !alive) return alive;
    return fail(ErrorCode::not_permitted,
                fmt::format("the code at {:#x} cannot be written", jumps[i].address),
                "something forbids changing code (SELinux execmod?): use --engine gdb without stubs", why);
  }
  return {};
}

Result<void> put_in(const Target& target, const Plan& plan, StubEngine& engine, Standstill& stillness,
                    const std::vector<pid_t>& filtered, Draft& draft) {
  if (auto checked = check_call_filters(stillness, filtered); !checked) return checked;
  CallPlace place{own_room(target.pid(), draft.areas.front().is_there ? draft.state.own_rooms : 0),
                  draft.state.nonce, draft.state.syscall_address};
  if (!place.room) place.room = draft.padding;
  auto calls = RemoteCalls::borrow(target, stillness, std::move(place));
  if (!calls) return tl::make_unexpected(calls.error());
  for (const Area& area : draft.areas) {
    if (area.is_there) continue;
    if (auto mapped =
            map_at(*calls, area.address, round_up(area.bytes.size(), plan.page_size), PROT_READ | PROT_EXEC);
        !mapped)
      return mapped;
    if (!stillness.write(area.address, area.bytes)) {
      const int why = errno;
      if (auto alive = target.check(); !alive) return alive;
      return fail(ErrorCode::not_permitted, fmt::format("code cannot be written to process {}", target.pid()),
                  {}, why);
    }
    if (&area != &draft.areas.front()) continue;
    if (auto room = own_room(target.pid(), draft.state.own_rooms))
      if (auto moved = calls->move_to(std::move(*room)); !moved) return moved;
  }
  if (!draft.data_is_there && engine.data_size() != 0)
    if (auto mapped = map_at(*calls, draft.data, engine.data_size(), PROT_READ | PROT_WRITE); !mapped)
      return mapped;
  std::vector<std::uint64_t> areas;
  for (const Area& area : draft.areas) areas.push_back(area.address);
  if (auto connected = engine.connect(*calls, stillness, draft.state, areas); !connected) return connected;
  return write_jumps(target, plan, stillness, draft);
}

}  // namespace

Result<std::optional<StubState>> clear_old_stubs(const Target& target, StopBy whom) {
  if (auto foreign = find_foreign_stubs(target)) return tl::make_unexpected(std::move(*foreign));
  auto old = load_state(target.identity());
  if (!old || !*old) return old;
  if (!(*old)->jumps.empty() || !(*old)->breakpoints.empty() || (*old)->trap_handler != 0 ||
      (*old)->padding.address != 0) {
    if (auto removed = remove_stubs(target, **old, whom); !removed)
      return tl::make_unexpected(removed.error());
  } else if (!is_ours(target.pid(), **old)) {
    forget_state(target.identity());
  }
  return load_state(target.identity());
}

Result<Installed> install_stubs(const Target& target, const Plan& plan, StubEngine& engine, StopBy whom) {
  const auto old = clear_old_stubs(target, whom);
  if (!old) return tl::make_unexpected(old.error());
  auto draft = Drafter(target, plan, engine, *old).draft();
  if (!draft) return tl::make_unexpected(draft.error());
  if (auto saved = save(draft->state); !saved) return tl::make_unexpected(saved.error());
  const std::vector<pid_t> filtered = filtered_threads(target);
  auto stillness = Standstill::by(whom, target);
  if (!stillness) return tl::make_unexpected(stillness.error());
  const auto done = put_in(target, plan, engine, *stillness, filtered, *draft);
  stillness->end();
  if (draft->padding &&
      read_bytes(target.pid(), draft->padding->address, call_room_size) == draft->padding->original)
    draft->state.padding = {};
  if (!done) {
    draft->state.jumps.clear();
    draft->state.traps.clear();
    (void)save(draft->state);
    return tl::make_unexpected(done.error());
  }
  // A debugger may set ordinary breakpoints at the other sites: what is there now, for repair.
  const auto others = CodeGuard::record(target, without_stubs(plan, draft->state));
  if (others) draft->state.breakpoints = others->originals();
  const auto saved = others ? save(draft->state) : tl::make_unexpected(others.error());
  if (!saved) {
    (void)remove_stubs(target, draft->state, whom);
    return tl::make_unexpected(saved.error());
  }
  return Installed{std::move(draft->state), std::move(draft->left_out), stillness->nanoseconds()};
}

Plan without_stubs(const Plan& plan, const StubState& state) {
  Plan rest = plan;
  for (const PlacedJump& jump : state.jumps) {
    rest.sites[jump.site].watch = WatchKind::none;
    rest.sites[jump.site].reason = "watched in its stub";
  }
  return rest;
}

}  // namespace whomap
