// SPDX-License-Identifier: Apache-2.0
// The ledger against a model of the kernel that knows the owner of every single page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "core/match/ledger.h"

namespace whomap {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t base = 0x10000;  // pages of the mmap area follow
constexpr std::size_t heap_page = 0;     // pages of the model, the heap first
constexpr std::size_t heap_pages = 32;
constexpr std::size_t pages = 512;

std::uint64_t address(std::size_t at) {
  return (base + at) * page;
}

/// Owner of every page; 0: not mapped.
struct PageModel {
  std::vector<std::uint32_t> owner = std::vector<std::uint32_t>(pages, 0);
  std::size_t break_at = heap_page + 4;

  void fill(std::size_t at, std::size_t count, std::uint32_t stack) {
    std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(at), count, stack);
  }
  /// First free run of `count` pages at or after `hint`; `pages` when there is none.
  [[nodiscard]] std::size_t find_free(std::size_t count, std::size_t hint) const {
    std::size_t run = 0;
    for (std::size_t i = std::max(hint, heap_pages); i < pages; ++i) {
      run = owner[i] == 0 ? run + 1 : 0;
      if (run == count) return i + 1 - count;
    }
    return pages;
  }
};

void expect_equal(const PageModel& model, const Ledger& ledger, const char* what, std::uint64_t step) {
  std::vector<std::uint32_t> owner(pages, 0);
  std::uint64_t previous_end = 0;
  for (const auto& [start, interval] : ledger.live()) {
    ASSERT_EQ(start, interval.range.start);
    ASSERT_LT(start, interval.range.end);
    ASSERT_GE(start, previous_end);
    previous_end = interval.range.end;
    for (std::uint64_t at = start; at < interval.range.end; at += page)
      owner.at(at / page - base) = interval.stack;
  }
  ASSERT_EQ(owner, model.owner) << what << ", step " << step;
}

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return engine_() % limit; }

 private:
  std::mt19937 engine_;
};

/// Calls of more flags: hints, NOREPLACE, huge pages, growing downwards, and failures.
CallEvent random_mmap(Random& random, PageModel& model, std::uint32_t stack) {
  constexpr std::uint64_t eexist = static_cast<std::uint64_t>(-17), enomem = static_cast<std::uint64_t>(-12);
  constexpr std::uint64_t noreplace = 0x100000, fixed = 0x10, hugetlb = 0x40000, grows_down = 0x100;
  const std::size_t count = 1 + random.below(24);
  const std::size_t at = heap_pages + random.below(pages - heap_pages - 64);
  CallEvent call;
  call.number = 9;
  switch (random.below(4)) {
    case 0: {  // with or without MAP_FIXED beside it
      const auto begin = model.owner.begin() + static_cast<std::ptrdiff_t>(at);
      const bool taken = std::any_of(begin, begin + static_cast<std::ptrdiff_t>(count),
                                     [](std::uint32_t owner) { return owner != 0; });
      call.arguments = {address(at), count * page, 3, 0x22 | noreplace | (random.below(2) == 0 ? fixed : 0)};
      call.result = taken ? eexist : address(at);
      if (!taken) model.fill(at, count, stack);
      return call;
    }
    case 1: {  // huge pages of 16 KiB (4 pages): the length is rounded up to them
      const std::size_t huge = (count + 3) / 4;
      const std::size_t free = model.find_free(huge * 4, at);
      call.arguments = {0, count * page, 3, 0x22 | hugetlb | 14ULL << 26};
      call.result = free == pages ? enomem : address(free);
      if (free != pages) model.fill(free, huge * 4, stack);
      return call;
    }
    case 2: {  // a hint that the kernel follows only when it is free
      const std::size_t free = model.find_free(count, at);
      call.arguments = {address(at), count * page, 0, 0x22 | (random.below(2) == 0 ? grows_down : 0)};
      call.result = free == pages ? enomem : address(free);
      if (free != pages) model.fill(free, count, stack);
      return call;
    }
    default:  // refused: no length, too long, bad flags
      call.arguments = {address(at), random.below(2) == 0 ? page : ~std::uint64_t{0}, 3, 0};
      call.result = random.below(2) == 0 ? enomem : static_cast<std::uint64_t>(-22);
      return call;
  }
}

/// One random call, applied to the model; the event tells what happened.
CallEvent random_call(Random& random, PageModel& model, std::uint32_t stack) {
  CallEvent call;
  const std::size_t count = 1 + random.below(24);
  const std::size_t at = heap_pages + random.below(pages - heap_pages - 64);
  const std::uint64_t odd =
      random.below(2) == 0 ? 0 : random.below(page - 1);  // lengths need not be whole pages
  const std::uint64_t length = count * page - odd;
  constexpr std::uint64_t enomem = static_cast<std::uint64_t>(-12);
  switch (random.below(12)) {
    case 10:
    case 11: return random_mmap(random, model, stack);
    case 0:
    case 1:
    case 2: {
      const std::size_t free = model.find_free(count, at);
      call.number = 9;
      call.arguments = {0, length, 3, 0x22};
      call.result = free == pages ? enomem : address(free);
      if (free != pages) model.fill(free, count, stack);
      break;
    }
    case 3:
      call.number = 9;
      call.arguments = {address(at), length, 3, 0x32};
      call.result = address(at);
      model.fill(at, count, stack);
      break;
    case 4:
    case 5:
    case 6:
      call.number = 11;
      call.arguments = {address(at), length};
      model.fill(at, count, 0);
      break;
    case 7: {  // move, with FIXED into a random place that does not overlap
      const std::size_t new_count = 1 + random.below(24);
      const std::size_t to = heap_pages + random.below(pages - heap_pages - 64);
      call.number = 25;
      if (to < at + count && at < to + new_count) {  // EINVAL
        call.arguments = {address(at), length, new_count * page, 3, address(to)};
        call.result = static_cast<std::uint64_t>(-22);
        break;
      }
      const bool keep = random.below(4) == 0;  // MREMAP_DONTUNMAP needs equal lengths
      const std::size_t moved = keep ? count : new_count;
      if (keep && to < at + count && at < to + count) {
        call.result = static_cast<std::uint64_t>(-22);
        break;
      }
      call.arguments = {address(at), length, moved * page, keep ? 7U : 3U, address(to)};
      call.result = address(to);
      std::vector<std::uint32_t> old(model.owner.begin() + static_cast<std::ptrdiff_t>(at),
                                     model.owner.begin() + static_cast<std::ptrdiff_t>(at + count));
      if (!keep) model.fill(at, count, 0);
      model.fill(to, moved, stack);
      for (std::size_t i = 0; !keep && i < std::min(count, moved); ++i)
        if (old[i] != 0) model.owner[to + i] = old[i];
      break;
    }
    case 8: {  // in place: shrink always works, growing needs free pages behind
      const std::size_t new_count = 1 + random.below(24);
      call.number = 25;
      call.arguments = {address(at), length, new_count * page, 0};
      call.result = address(at);
      if (new_count <= count) {
        model.fill(at + new_count, count - new_count, 0);
        break;
      }
      for (std::size_t i = count; i < new_count; ++i)
        if (model.owner[at + i] != 0) call.result = enomem;
      if (call.result != enomem) model.fill(at + count, new_count - count, stack);
      break;
    }
    default: {
      const std::size_t to = heap_page + random.below(heap_pages + 8);
      call.number = 12;
      call.arguments = {address(to)};
      if (to <= 1 || to > heap_pages) {  // refused: the old break comes back
        call.result = address(model.break_at);
        break;
      }
      call.result = address(to);
      if (to > model.break_at)
        model.fill(model.break_at, to - model.break_at, stack);
      else
        model.fill(to, model.break_at - to, 0);
      model.break_at = to;
    }
  }
  return call;
}

TEST(LedgerProperty, EqualsThePageModelForAnySequence) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    PageModel model;
    Ledger ledger;
    ledger.set_break(address(model.break_at));
    for (std::uint64_t step = 1; step <= 60'000; ++step) {
      CallEvent call = random_call(random, model, static_cast<std::uint32_t>(step));
      const bool timed = random.below(2) == 0;
      call.tid = 1;
      call.exit_ns = step * 10;
      call.enter_ns = timed ? call.exit_ns - 5 : call.exit_ns;
      ledger.apply(call, static_cast<std::uint32_t>(step));
      if (step % 16 == 0 || step < 500) expect_equal(model, ledger, "sequence", step);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(ledger.counts().conflicts, 0U);
    EXPECT_EQ(ledger.counts().spared, 0U);
    EXPECT_EQ(ledger.counts().implausible, 0U);
  }
}

TEST(LedgerProperty, AttachedSegmentsAreThoseOfTheModel) {
  Random random(7);
  Ledger ledger;
  std::map<std::uint64_t, std::uint32_t> model;  // address -> stack
  for (std::uint32_t step = 1; step <= 200'000; ++step) {
    const std::uint64_t at = address(heap_pages + random.below(200) * 8);
    CallEvent call;
    call.tid = 1;
    call.exit_ns = call.enter_ns = std::uint64_t{step} * 10;
    switch (random.below(4)) {
      case 0:  // SHM_REMAP may put one over another; a failure changes nothing
        call.number = 30;
        call.arguments = {random.below(9), 0, 0};
        call.result = random.below(5) == 0 ? static_cast<std::uint64_t>(-12) : at;
        if (call.result == at) model[at] = step;
        break;
      case 1:
        call.number = 67;
        call.arguments = {at};
        call.result = model.erase(at) != 0 ? 0 : static_cast<std::uint64_t>(-22);
        break;
      case 2: {  // munmap takes segments that begin in its range
        const std::uint64_t length = (1 + random.below(16)) * page;
        call.number = 11;
        call.arguments = {at, length};
        model.erase(model.lower_bound(at), model.lower_bound(at + length));
        break;
      }
      default:  // and so does a mapping that replaces
        call.number = 9;
        call.arguments = {at, page, 3, 0x32};
        call.result = at;
        model.erase(at);
    }
    ledger.apply(call, step);
    if (step % 64 != 0) continue;
    std::map<std::uint64_t, std::uint32_t> found;
    for (const auto& [start, interval] : ledger.unsized()) found[start] = interval.stack;
    ASSERT_EQ(found, model) << "step " << step;
  }
  EXPECT_EQ(ledger.counts().implausible, 0U);
}

/// Threads whose calls overlap: each call is entered, takes effect, and exits at its own time. Programs are
/// sane: they unmap and move only what a call that has returned has given them.
class ConcurrentRun {
 public:
  explicit ConcurrentRun(std::uint32_t seed) : random_(seed), threads_(8) {}

  void run(std::uint64_t steps) {
    for (now_ = 1; now_ <= steps; ++now_) {
      Thread& thread = threads_[random_.below(threads_.size())];
      switch (thread.state) {
        case State::idle: enter(thread); break;
        case State::entered: effect(thread); break;
        case State::done: leave(thread); break;
      }
    }
    for (Thread& thread : threads_) {
      if (thread.state == State::entered) effect(thread);
      ++now_;
      if (thread.state == State::done) leave(thread);
    }
  }

  PageModel model;
  Ledger ledger;

 private:
  enum class State { idle, entered, done };
  struct Block {
    std::size_t at = 0, count = 0;
  };
  struct Thread {
    State state = State::idle;
    CallEvent call;
    Block block, target;
    std::uint32_t stack = 0;
    bool failed = false;
  };

  void enter(Thread& thread) {
    thread.state = State::entered;
    thread.call = {};
    thread.call.enter_ns = now_;
    thread.call.tid = static_cast<pid_t>(&thread - threads_.data()) + 1;
    thread.stack = ++stacks_;
    const std::size_t what = random_.below(5);
    if (what < 2 || owned_.empty()) {
      thread.call.number = 9;
      thread.block = {0, 1 + random_.below(8)};
      thread.call.arguments = {0, thread.block.count * page, 3, 0x22};
      return;
    }
    const std::size_t which = random_.below(owned_.size());
    thread.block = owned_[which];
    if (what == 4 && thread.block.count > 1) {  // a part; the rest stays with the program
      const std::size_t part = 1 + random_.below(thread.block.count - 1);
      owned_[which] = {thread.block.at + part, thread.block.count - part};
      thread.block.count = part;
    } else {
      owned_[which] = owned_.back();
      owned_.pop_back();
    }
    if (what == 3) {
      thread.call.number = 25;
      thread.target.count = 1 + random_.below(8);
      thread.call.arguments = {address(thread.block.at), thread.block.count * page,
                               thread.target.count * page, 1};
    } else {
      thread.call.number = 11;
      thread.call.arguments = {address(thread.block.at), thread.block.count * page};
    }
  }

  void effect(Thread& thread) {
    thread.state = State::done;
    thread.failed = false;
    if (thread.call.number == 11) return model.fill(thread.block.at, thread.block.count, 0);
    if (thread.call.number == 9) {
      thread.block.at = model.find_free(thread.block.count, 0);
      thread.failed = thread.block.at == pages;
      thread.call.result = thread.failed ? static_cast<std::uint64_t>(-12) : address(thread.block.at);
      if (!thread.failed) model.fill(thread.block.at, thread.block.count, thread.stack);
      return;
    }
    remap(thread);
  }

  void remap(Thread& thread) {
    Block& from = thread.block;
    Block& to = thread.target;
    thread.call.result = address(from.at);
    if (to.count <= from.count) {
      model.fill(from.at + to.count, from.count - to.count, 0);
      to.at = from.at;
      return;
    }
    to.at = model.find_free(to.count, 0);
    if (to.at == pages) {
      thread.failed = true;
      thread.call.result = static_cast<std::uint64_t>(-12);
      return;
    }
    thread.call.result = address(to.at);
    for (std::size_t i = 0; i < to.count; ++i)
      model.owner[to.at + i] = i < from.count ? model.owner[from.at + i] : thread.stack;
    model.fill(from.at, from.count, 0);
  }

  void leave(Thread& thread) {
    thread.state = State::idle;
    thread.call.exit_ns = now_;
    if (thread.call.number == 9 && !thread.failed) owned_.push_back(thread.block);
    if (thread.call.number == 25) owned_.push_back(thread.failed ? thread.block : thread.target);
    ledger.apply(thread.call, thread.stack);
  }

  Random random_;
  std::vector<Thread> threads_;
  std::vector<Block> owned_;
  std::uint64_t now_ = 0;
  std::uint32_t stacks_ = 0;
};

TEST(LedgerProperty, OverlappingCallsAppliedByExitGiveTheKernelsOrder) {
  std::uint64_t conflicts = 0;
  std::uint64_t spared = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    ConcurrentRun concurrent(seed);
    concurrent.run(9'000);  // 3,000 calls
    expect_equal(concurrent.model, concurrent.ledger, "concurrent", seed);
    if (HasFatalFailure()) return;
    conflicts += concurrent.ledger.counts().conflicts;
    spared += concurrent.ledger.counts().spared;
  }
  // The test is worth nothing if the overlaps do not happen.
  EXPECT_GT(conflicts, 10'000U);
  EXPECT_GT(spared, 10'000U);
}

}  // namespace
}  // namespace whomap
