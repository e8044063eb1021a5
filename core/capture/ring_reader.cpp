// SPDX-License-Identifier: Apache-2.0
#include "core/capture/ring_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace whomap {
namespace {

constexpr std::uint64_t shortest_pause_ns = 200'000, longest_pause_ns = 10'000'000;
constexpr std::uint64_t clock_period_ns = 100'000'000;
constexpr std::uint64_t clock_settle_ns = 5'000'000;

constexpr std::uint64_t phase(std::uint64_t state) {
  return state & 3U;
}
constexpr std::uint64_t claim_of(std::uint64_t state) {
  return state >> 2U;
}
constexpr std::uint64_t with_phase(std::uint64_t state, std::uint64_t phase) {
  return (state & ~std::uint64_t{3}) | phase;
}

}  // namespace

RingReader::RingReader(std::span<std::byte> ring, const RingShape& shape, Options options)
    : ring_(ring),
      shape_(shape),
      options_(std::move(options)),
      clock_(options_.tsc_usable ? clock_settle_ns : 0),
      pause_ns_(shortest_pause_ns) {}

std::uint64_t& RingReader::state(std::uint64_t index) const {
  return *reinterpret_cast<std::uint64_t*>(ring_.data() + shape_.states + index * sizeof(std::uint64_t));
}

/// Fills current_. False when the slot's content cannot be what a stub wrote.
bool RingReader::read_slot(std::uint64_t index, std::uint64_t claim) {
  const std::byte* at = ring_.data() + shape_.slots + index * shape_.slot_bytes;
  SlotHead slot;
  std::memcpy(&slot, at, sizeof slot);
  const std::uint64_t return_address = options_.return_address_of ? options_.return_address_of(slot.site) : 0;
  if (slot.claim != claim || slot.copy_bytes > shape_.options.stack_bytes || return_address == 0 ||
      slot.stack_end > WHOMAP_STACK_END_UNALIGNED)
    return false;
  current_.claim = slot.claim;
  current_.thread_base = slot.thread_base;
  current_.stack_end = static_cast<StackEnd>(slot.stack_end);
  CallEvent& event = current_.capture.event;
  event.enter_ns = options_.tsc_usable ? clock_.to_ns(slot.enter_tsc) : 0;
  event.exit_ns = options_.tsc_usable ? clock_.to_ns(slot.exit_tsc) : 0;
  event.tid = options_.thread_of ? options_.thread_of(slot.thread_base, slot.rsp) : 0;
  event.number = slot.number;
  event.arguments = slot.arguments;
  event.result = slot.result;
  event.site = slot.site;
  current_.capture.registers = {return_address, slot.rsp, slot.rbp, slot.rbx,
                                slot.r12,       slot.r13, slot.r14, slot.r15};
  current_.capture.stack.address = slot.rsp;
  const std::byte* stack = at + WHOMAP_SLOT_STACK;
  current_.capture.stack.bytes.assign(stack, stack + slot.copy_bytes);
  return true;
}

void RingReader::refill_tokens(std::uint64_t now_ns) {
  if (options_.calls_per_second == 0) return;
  // At most a tenth of a second's worth is kept: a burst after silence is not a second's calls at once.
  const auto most = static_cast<std::int64_t>(std::max<std::uint64_t>(options_.calls_per_second / 10, 1));
  const std::atomic_ref tokens(head().tokens);
  if (tokens_filled_ns_ == 0) {
    tokens.store(most, std::memory_order_relaxed);
    tokens_filled_ns_ = now_ns;
    return;
  }
  const std::uint64_t per_token = std::max<std::uint64_t>(1'000'000'000 / options_.calls_per_second, 1);
  const std::uint64_t earned = (now_ns - tokens_filled_ns_) / per_token;
  if (earned == 0) return;
  tokens_filled_ns_ += earned * per_token;
  const std::int64_t room = most - tokens.load(std::memory_order_relaxed);
  if (room > 0)
    tokens.fetch_add(std::min(room, static_cast<std::int64_t>(earned)), std::memory_order_relaxed);
}

/// A slot whose owner does not finish is retired: the owner, should it go on, gives it back, and until then
/// nobody else may write there.
void RingReader::give_up(std::uint64_t index, std::uint64_t found) {
  const std::uint64_t retired = with_phase(found, WHOMAP_SLOT_RETIRED);
  if (!std::atomic_ref(state(index)).compare_exchange_strong(found, retired)) return;
  given_up_[index] = retired;
  ++counts_.lost;
}

bool RingReader::give_up_in_time(std::uint64_t index, std::uint64_t found, std::uint64_t now_ns) {
  const auto [entry, is_new] = writing_.try_emplace(index, Writing{found, now_ns});
  if (!is_new && entry->second.state != found) entry->second = {found, now_ns};
  if (now_ns - entry->second.since_ns < options_.slot_timeout_ns) return false;
  writing_.erase(entry);
  give_up(index, found);
  return true;
}

void RingReader::notice_given_back(std::uint64_t index, std::uint64_t found) {
  const auto gone = given_up_.find(index);
  if (gone == given_up_.end() || gone->second == found) return;
  given_up_.erase(gone);
  ++counts_.recovered;
}

void RingReader::adapt_pause(std::size_t found) {
  const std::uint64_t slots = shape_.options.slot_count;
  if (found * 4 > slots)
    pause_ns_ = std::max(pause_ns_ / 4, shortest_pause_ns);
  else if (found * 16 > slots)
    pause_ns_ = std::max(pause_ns_ / 2, shortest_pause_ns);
  else if (found * 64 < slots)
    pause_ns_ = std::min(pause_ns_ * 2, longest_pause_ns);
}

std::size_t RingReader::poll(std::uint64_t now_ns, const Consumer& consumer) {
  refill_tokens(now_ns);
  if (options_.tsc_usable && now_ns - clock_corrected_ns_ >= clock_period_ns) {
    clock_.add(read_clocks());
    clock_corrected_ns_ = now_ns;
  }
  std::size_t found = 0;
  counts_.pending = 0;
  // From the slot that is claimed next: that is the oldest, so that slots come free in the order in which
  // they are claimed.
  const std::uint64_t slots = shape_.options.slot_count;
  const std::uint64_t first = std::atomic_ref(head().claims).load(std::memory_order_acquire);
  for (std::uint64_t i = 0; i < slots; ++i) {
    const std::uint64_t index = (first + i) & (slots - 1);
    const std::atomic_ref word(state(index));
    const std::uint64_t seen = word.load(std::memory_order_acquire);
    if (!given_up_.empty()) notice_given_back(index, seen);
    switch (phase(seen)) {
      case WHOMAP_SLOT_COMPLETE:
        // Claimed since this poll began: earlier ones may have been passed already, so it has to wait.
        if (claim_of(seen) >= first) break;
        if (read_slot(index, claim_of(seen))) {
          ++counts_.captured;
          if (current_.stack_end != StackEnd::whole) ++counts_.cut_stacks;
          ++found;
        } else {
          ++counts_.damaged;
          current_.claim = 0;
        }
        // Before the consumer, which may take its time.
        word.store(with_phase(seen, WHOMAP_SLOT_FREE), std::memory_order_release);
        if (current_.claim != 0) consumer(current_);
        break;
      case WHOMAP_SLOT_WRITING:
        if (!give_up_in_time(index, seen, now_ns)) ++counts_.pending;
        break;
      default: break;
    }
  }
  adapt_pause(found);
  return found;
}

std::size_t RingReader::finish(std::uint64_t now_ns, const Consumer& consumer) {
  for (std::uint64_t index = 0; index < shape_.options.slot_count; ++index) {
    const std::uint64_t seen = std::atomic_ref(state(index)).load(std::memory_order_acquire);
    if (phase(seen) == WHOMAP_SLOT_WRITING) give_up(index, seen);
  }
  return poll(now_ns, consumer);
}

void RingReader::reclaim_given_up() {
  for (const auto& [index, retired] : given_up_) {
    // When this fails, its owner has given it back already.
    std::uint64_t expected = retired;
    std::atomic_ref(state(index)).compare_exchange_strong(expected, with_phase(retired, WHOMAP_SLOT_FREE));
    ++counts_.recovered;
  }
  given_up_.clear();
}

RingCounts RingReader::counts() const {
  RingCounts counts = counts_;
  counts.dropped = std::atomic_ref(head().dropped).load(std::memory_order_relaxed);
  counts.over_rate = std::atomic_ref(head().over_rate).load(std::memory_order_relaxed);
  return counts;
}

}  // namespace whomap
