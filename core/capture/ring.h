// SPDX-License-Identifier: Apache-2.0
// The memory that carries calls from the target to the tracer. core/README.md describes it as a whole.
//
// Control area: private to the target, at an address that its stubs know. Its first page, ControlPage, is to
// be MADV_WIPEONFORK, so that a forked child finds itself not armed and records nothing. What lies behind it,
// the settings and the calls under way, is not wiped: a child that was forked by a signal handler while a
// call was being recorded goes on there until it asks whether it is armed, and then takes its own rax from
// the entry. Ring: shared by both sides, each at an address of its own, so it holds offsets only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/error.h"
#include "core/capture/ring_offsets.h"

namespace whomap {

inline constexpr std::uint64_t control_magic = 0x314C54434D484FULL;  ///< "OHMCTL1"
inline constexpr std::uint64_t ring_magic = 0x31474E524D484FULL;     ///< "OHMRNG1"

enum class ArmedState : std::uint32_t {
  off = 0,
  recording = WHOMAP_ARMED,
  finishing = WHOMAP_FINISHING,  ///< calls under way are still recorded, no others
};

/// All 0 at first, and in a forked child.
// What different threads write has cache lines of its own.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct ControlPage {
  std::uint32_t armed = 0;  ///< written by the tracer, after the settings

  /// Threads that may be touching the ring. It is 0 only if nobody is; after `armed` was set to `off` and
  /// this was then read as 0, nobody will be.
  alignas(64) std::uint64_t inside = 0;
  alignas(64) std::uint64_t sampled_bytes = 0;

  alignas(64) std::uint64_t too_short = 0;
  std::uint64_t too_short_bytes = 0;
  std::uint64_t not_sampled = 0;
  std::uint64_t not_sampled_bytes = 0;
  std::uint64_t no_place = 0;         ///< not recorded: more calls under way than its bucket has entries
  std::uint64_t abandoned = 0;        ///< began and never came back here (longjmp, a killed vfork child)
  std::uint64_t unarmed_returns = 0;  ///< began before `armed` was taken away and returned after
  std::uint64_t unpaired = 0;         ///< returned without an entry
};

/// Written by the tracer while not armed and `inside` is 0. Addresses are the target's.
struct RecordSettings {
  std::uint64_t magic = control_magic;
  std::uint32_t tsc_usable = 0;          ///< else times are 0 and only claims order the calls
  std::uint32_t thread_base_usable = 0;  ///< rdfsbase works: AT_HWCAP2 has bit 1 (HWCAP2_FSGSBASE)
  std::uint32_t rate_limited = 0;  ///< each call but munmap, mremap and brk takes one of RingHead::tokens
  std::uint32_t padding = 0;
  std::uint64_t ring = 0;
  std::uint64_t ring_bytes = 0;
  std::uint64_t states = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_mask = 0;  ///< number of slots - 1
  std::uint64_t stack_bytes = 0;
  std::uint64_t minimum_length = 0;   ///< shorter mmaps are only counted
  std::uint64_t sample_interval = 0;  ///< bytes, a power of two: one mmap each time the sum passes a multiple
  std::uint64_t sample_mask = 0;      ///< sample_interval - 1
};

/// One call under way, found by the thread's stack pointer: nothing else that is the stub's own outlives the
/// syscall instruction. `key` 0 is a free entry.
struct CallEntry {
  std::uint64_t key, result;
  std::uint32_t flags, tries;
  std::uint64_t enter_tsc, exit_tsc, thread_base, copy_bytes;
  std::uint32_t stack_end, padding;
  std::uint64_t table, sequence, claim, index, state, claimed;
  std::array<std::uint64_t, 2> unused;
};

inline constexpr std::size_t control_area_bytes =
    WHOMAP_CALLS + std::size_t{WHOMAP_BUCKETS} * WHOMAP_BUCKET_BYTES;

// What different threads write has cache lines of its own.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct RingHead {
  std::uint64_t magic;
  std::uint64_t slot_count, stack_bytes, range_capacity;  ///< as in RingOptions
  alignas(128) std::uint64_t claims;                      ///< number of the next claim
  alignas(128) std::uint64_t dropped;                     ///< no slot was free
  std::uint64_t over_rate;                                ///< no token was left
  alignas(128) std::int64_t tokens;
  alignas(128) std::uint64_t current_table;  ///< offset of the StackTable in use
};

struct StackRange {
  /// In `end`: only a thread whose fs_base lies in the range above its rsp may be copied, up to fs_base. For
  /// ranges that can be unmapped, or become another thread's, before the tracer sees it.
  static constexpr std::uint64_t needs_thread_base = 1;
  std::uint64_t start, end;
};

/// `sequence` is odd while the tracer writes; a reader that saw it change trusts nothing it read.
struct StackTable {
  std::uint64_t sequence, count;
};

enum class StackEnd : std::uint32_t {
  whole = WHOMAP_STACK_END_WHOLE,          ///< the known end of the stack, or the thread's descriptor
  capacity = WHOMAP_STACK_END_CAPACITY,    ///< the slot holds no more
  page = WHOMAP_STACK_END_PAGE,            ///< a stack that is not known: the end of rsp's page
  own_range = WHOMAP_STACK_END_OWN_RANGE,  ///< the memory that this call itself changes begins here
  unaligned = WHOMAP_STACK_END_UNALIGNED,  ///< rsp is no multiple of 8: nothing was copied
};

struct SlotHead {
  std::uint64_t claim;
  std::uint32_t site, number;
  std::array<std::uint64_t, 6> arguments;
  std::uint64_t result, enter_tsc, exit_tsc, thread_base;
  std::uint64_t rsp, rbp, rbx, r12, r13, r14, r15;
  std::uint64_t copy_bytes;
  std::uint32_t stack_end;
};

struct RingOptions {
  std::uint64_t slot_count = 4096;           ///< a power of two
  std::uint64_t stack_bytes = 16 * 1024;     ///< copied per call at most; a multiple of 64
  std::uint64_t range_capacity = 16 * 1024;  ///< stacks that can be told apart
};

/// Offsets in a ring; computed, never read from memory that the target can write.
struct RingShape {
  /// Errors: usage when an option is not as RingOptions demands.
  static Result<RingShape> of(const RingOptions& options);

  RingOptions options;
  std::uint64_t states = 0, tables = 0, table_bytes = 0, slots = 0, slot_bytes = 0, bytes = 0;
};

/// Makes `ring`, all zero and at least shape.bytes long, a ring without calls.
void format_ring(std::span<std::byte> ring, const RingShape& shape);

struct RecordOptions {
  bool tsc_usable = false;
  bool thread_base_usable = false;
  bool rate_limited = false;
  std::uint64_t minimum_length = 0;
  std::uint64_t sample_interval = 0;  ///< rounded down to a power of two; 0: every mmap
};

/// What to write at the control area's address + WHOMAP_SETTINGS for a ring that the target has mapped at
/// `ring`.
RecordSettings record_settings(std::uint64_t ring, const RingShape& shape, const RecordOptions& options);

static_assert(offsetof(ControlPage, armed) == WHOMAP_CONTROL_ARMED);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, tsc_usable) == WHOMAP_SETTINGS_TSC_USABLE);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, thread_base_usable) ==
              WHOMAP_SETTINGS_THREAD_BASE_USABLE);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, rate_limited) == WHOMAP_SETTINGS_RATE_LIMITED);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, ring) == WHOMAP_SETTINGS_RING);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, states) == WHOMAP_SETTINGS_STATES);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, slots) == WHOMAP_SETTINGS_SLOTS);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, slot_bytes) == WHOMAP_SETTINGS_SLOT_BYTES);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, slot_mask) == WHOMAP_SETTINGS_SLOT_MASK);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, stack_bytes) == WHOMAP_SETTINGS_STACK_BYTES);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, minimum_length) == WHOMAP_SETTINGS_MINIMUM_LENGTH);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, sample_interval) == WHOMAP_SETTINGS_SAMPLE_INTERVAL);
static_assert(WHOMAP_SETTINGS + offsetof(RecordSettings, sample_mask) == WHOMAP_SETTINGS_SAMPLE_MASK);
static_assert(offsetof(ControlPage, inside) == WHOMAP_CONTROL_INSIDE);
static_assert(offsetof(ControlPage, sampled_bytes) == WHOMAP_CONTROL_SAMPLED_BYTES);
static_assert(offsetof(ControlPage, too_short) == WHOMAP_CONTROL_TOO_SHORT);
static_assert(offsetof(ControlPage, too_short_bytes) == WHOMAP_CONTROL_TOO_SHORT_BYTES);
static_assert(offsetof(ControlPage, not_sampled) == WHOMAP_CONTROL_NOT_SAMPLED);
static_assert(offsetof(ControlPage, not_sampled_bytes) == WHOMAP_CONTROL_NOT_SAMPLED_BYTES);
static_assert(offsetof(ControlPage, no_place) == WHOMAP_CONTROL_NO_PLACE);
static_assert(offsetof(ControlPage, abandoned) == WHOMAP_CONTROL_ABANDONED);
static_assert(offsetof(ControlPage, unarmed_returns) == WHOMAP_CONTROL_UNARMED_RETURNS);
static_assert(offsetof(ControlPage, unpaired) == WHOMAP_CONTROL_UNPAIRED);
static_assert(sizeof(ControlPage) <= WHOMAP_CONTROL_BYTES && sizeof(RecordSettings) <= WHOMAP_SETTINGS_BYTES);

static_assert(offsetof(CallEntry, key) == WHOMAP_CALL_KEY);
static_assert(offsetof(CallEntry, result) == WHOMAP_CALL_RESULT);
static_assert(offsetof(CallEntry, flags) == WHOMAP_CALL_FLAGS);
static_assert(offsetof(CallEntry, tries) == WHOMAP_CALL_TRIES);
static_assert(offsetof(CallEntry, enter_tsc) == WHOMAP_CALL_ENTER_TSC);
static_assert(offsetof(CallEntry, exit_tsc) == WHOMAP_CALL_EXIT_TSC);
static_assert(offsetof(CallEntry, thread_base) == WHOMAP_CALL_THREAD_BASE);
static_assert(offsetof(CallEntry, copy_bytes) == WHOMAP_CALL_COPY_BYTES);
static_assert(offsetof(CallEntry, stack_end) == WHOMAP_CALL_STACK_END);
static_assert(offsetof(CallEntry, table) == WHOMAP_CALL_TABLE);
static_assert(offsetof(CallEntry, sequence) == WHOMAP_CALL_SEQUENCE);
static_assert(offsetof(CallEntry, claim) == WHOMAP_CALL_CLAIM);
static_assert(offsetof(CallEntry, index) == WHOMAP_CALL_INDEX);
static_assert(offsetof(CallEntry, state) == WHOMAP_CALL_STATE);
static_assert(offsetof(CallEntry, claimed) == WHOMAP_CALL_CLAIMED);
static_assert(sizeof(CallEntry) == WHOMAP_CALL_BYTES && WHOMAP_BUCKET_BYTES == 1 << WHOMAP_BUCKET_SHIFT);

static_assert(offsetof(RingHead, claims) == WHOMAP_RING_CLAIMS);
static_assert(offsetof(RingHead, dropped) == WHOMAP_RING_DROPPED);
static_assert(offsetof(RingHead, over_rate) == WHOMAP_RING_OVER_RATE);
static_assert(offsetof(RingHead, tokens) == WHOMAP_RING_TOKENS);
static_assert(offsetof(RingHead, current_table) == WHOMAP_RING_CURRENT_TABLE);
static_assert(offsetof(StackTable, sequence) == WHOMAP_TABLE_SEQUENCE);
static_assert(offsetof(StackTable, count) == WHOMAP_TABLE_COUNT);
static_assert(sizeof(StackTable) <= WHOMAP_TABLE_RANGES && sizeof(StackRange) == 1 << WHOMAP_RANGE_SHIFT);

static_assert(offsetof(SlotHead, claim) == WHOMAP_SLOT_CLAIM);
static_assert(offsetof(SlotHead, site) == WHOMAP_SLOT_SITE);
static_assert(offsetof(SlotHead, number) == WHOMAP_SLOT_NUMBER);
static_assert(offsetof(SlotHead, arguments) == WHOMAP_SLOT_ARGUMENTS);
static_assert(offsetof(SlotHead, result) == WHOMAP_SLOT_RESULT);
static_assert(offsetof(SlotHead, enter_tsc) == WHOMAP_SLOT_ENTER_TSC);
static_assert(offsetof(SlotHead, exit_tsc) == WHOMAP_SLOT_EXIT_TSC);
static_assert(offsetof(SlotHead, thread_base) == WHOMAP_SLOT_THREAD_BASE);
static_assert(offsetof(SlotHead, rsp) == WHOMAP_SLOT_RSP);
static_assert(offsetof(SlotHead, rbp) == WHOMAP_SLOT_RBP);
static_assert(offsetof(SlotHead, rbx) == WHOMAP_SLOT_RBX);
static_assert(offsetof(SlotHead, r12) == WHOMAP_SLOT_R12);
static_assert(offsetof(SlotHead, r13) == WHOMAP_SLOT_R13);
static_assert(offsetof(SlotHead, r14) == WHOMAP_SLOT_R14);
static_assert(offsetof(SlotHead, r15) == WHOMAP_SLOT_R15);
static_assert(offsetof(SlotHead, copy_bytes) == WHOMAP_SLOT_COPY_BYTES);
static_assert(offsetof(SlotHead, stack_end) == WHOMAP_SLOT_STACK_END);
static_assert(sizeof(SlotHead) <= WHOMAP_SLOT_STACK);

}  // namespace whomap
