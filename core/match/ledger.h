// SPDX-License-Identifier: Apache-2.0
// Which captured call owns which mapped address now: a map of disjoint live intervals.
//
// The order of calls. A call takes effect in the kernel somewhere between its entry and its exit, and calls
// of several threads overlap, so the order of the exits is not the order of the effects. Calls are applied by
// exit (see event_order.h), and two rules repair what that gets wrong:
//  1. *The kernel only hands out free addresses.* An mmap without MAP_FIXED whose range is owned proves that
//  the
//     owner was unmapped before, by a call not yet seen or lost: the new owner takes the range.
//  2. *Nobody can unmap what nobody has been given yet.* A call that unmaps cuts only what was mapped by a
//  call
//     that had returned before the unmapping call was entered; what is younger stays.
// With the entry times known, and programs that only unmap what they were given, the result is exact (a
// property test says so). Where only returns were seen (enter_ns == exit_ns), rule 2 cannot be applied, and a
// munmap that arrives shortly after a conflict under rule 1, from another thread than the new owner's, is
// taken for the missing one: it spares the new owner once. Every such decision is counted.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "core/capture/call_event.h"
#include "core/match/interval_map.h"
#include "core/process/vma.h"

namespace whomap {

/// What the ledger had to decide, for the report's notes.
struct LedgerCounts {
  std::uint64_t conflicts = 0;    ///< a call was given a range that was owned: an unmapping was late or lost
  std::uint64_t spared = 0;       ///< parts that an unmapping call left alone because they were younger
  std::uint64_t implausible = 0;  ///< results that the kernel cannot have returned: mispaired, not applied
  std::uint64_t unknown_break = 0;      ///< brk calls before the program break was known: their size is not
  std::uint64_t unknown_length = 0;     ///< mmap calls whose length is not in the trace
  std::uint64_t unknown_arguments = 0;  ///< other calls without arguments: what they did is not known
};

class Ledger {
 public:
  /// Sizes in bytes. The kernel rounds lengths up to the page, or to the huge page for MAP_HUGETLB without a
  /// size of its own in the flags.
  explicit Ledger(std::uint64_t page_size = 4096, std::uint64_t huge_page_size = std::uint64_t{2} << 20)
      : page_size_(page_size), huge_page_size_(huge_page_size) {}

  /// Applies one call. Calls must come by exit_ns. Failed calls change nothing.
  void apply(const CallEvent& call, std::uint32_t stack);

  /// Has the processor fetch what applying this call will read. Changes nothing.
  void prefetch(const CallEvent& call) const;

  /// Applies a call that makes a mapping, where its range has no owner; changes nothing else. For calls
  /// around the time at which the regions were read.
  void apply_if_free(const CallEvent& call, std::uint32_t stack);

  /// The end of [heap], where it is known before the first brk call.
  void set_break(std::uint64_t address) { break_ = address; }

  /// Live intervals by start address: a copy, O(n log n).
  [[nodiscard]] std::map<std::uint64_t, LiveInterval> live() const { return live_.copy(); }
  /// By address, what is known to begin there and not how long it is (range.end == range.start): attached
  /// System V segments, and mmap calls from logs without arguments. The maps know more.
  [[nodiscard]] const std::map<std::uint64_t, LiveInterval>& unsized() const { return unsized_; }
  [[nodiscard]] const LedgerCounts& counts() const { return counts_; }

 private:
  /// An owner that lost its range to a newer call under rule 1.
  struct Displaced {
    LiveInterval interval;
    std::uint64_t at_ns = 0;
    pid_t by = 0;
  };
  using Pieces = std::vector<LiveInterval>;

  void apply_mmap(const CallEvent& call, std::uint32_t stack);
  void apply_munmap(const CallEvent& call);
  void apply_mremap(const CallEvent& call, std::uint32_t stack);
  void apply_brk(const CallEvent& call, std::uint32_t stack);
  /// Something of unknown length begins at the call's result.
  void add_unsized(const CallEvent& call, std::uint32_t stack);
  void apply_shmdt(const CallEvent& call);

  /// Takes out what `range` covers and a call entered at `entered_ns` may unmap under rule 2.
  template <class Taken>
  void cut(AddressRange range, std::uint64_t entered_ns, const Taken& taken);
  /// The same for an unmapping call, with what it spares (see without_displaced).
  void unmap(AddressRange range, const CallEvent& call);
  /// The parts of `range` that are left for a munmap whose entry time is unknown.
  std::vector<AddressRange> without_displaced(AddressRange range, const CallEvent& call);
  /// The owner takes its range from whoever has it.
  void add(const LiveInterval& interval, bool proves_free);
  Pieces take_displaced(AddressRange range, const CallEvent& call);
  void remember_displaced(const LiveInterval& interval, const LiveInterval& by);

  [[nodiscard]] std::uint64_t page_up(std::uint64_t length) const;
  /// What the call maps that was not mapped before; empty for calls that map nothing or cannot have returned
  /// that.
  [[nodiscard]] AddressRange mapped_by(const CallEvent& call) const;
  [[nodiscard]] bool owns_mapping_between(std::uint64_t start, std::uint64_t end) const;
  [[nodiscard]] bool plausible(std::uint64_t address, std::uint64_t length) const;

  std::uint64_t page_size_;
  std::uint64_t huge_page_size_;
  IntervalMap live_;
  std::map<std::uint64_t, LiveInterval> unsized_;
  /// Addresses at which a segment was attached while another was: the detaching call is still to come.
  std::map<std::uint64_t, Displaced> undetached_;
  std::deque<Displaced> displaced_;
  std::uint64_t break_ = 0;  ///< the last program break seen, 0 before the first
  std::uint64_t break_exit_ns_ = 0;
  pid_t break_tid_ = 0;
  LedgerCounts counts_;
};

}  // namespace whomap
