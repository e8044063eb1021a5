// SPDX-License-Identifier: Apache-2.0
// Takes the captures out of a ring (core/capture/ring.h), in the tracer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/capture/call_event.h"
#include "core/capture/ring.h"
#include "core/capture/tsc_clock.h"

namespace whomap {

/// A capture with what the ring knows beyond it.
struct RingCapture {
  Capture capture;                ///< of which `registers.rip` is what the site's callback said
  std::uint64_t claim = 0;        ///< orders the calls where times are not known
  std::uint64_t thread_base = 0;  ///< fs_base; 0 is unknown
  StackEnd stack_end = StackEnd::whole;
};

/// Every call that reached the ring is one of captured, lost, damaged, dropped, over_rate, or still pending.
struct RingCounts {
  std::uint64_t captured = 0;
  std::uint64_t lost = 0;        ///< claimed and not completed in time: the thread died, hangs or jumped away
  std::uint64_t recovered = 0;   ///< of the lost, those whose slot came back into use
  std::uint64_t damaged = 0;     ///< a slot whose content cannot be: the target wrote over it
  std::uint64_t dropped = 0;     ///< the ring was full
  std::uint64_t over_rate = 0;   ///< left out by the rate limit
  std::uint64_t pending = 0;     ///< being written at the last poll
  std::uint64_t cut_stacks = 0;  ///< of the captured, those that do not have StackEnd::whole
};

class RingReader {
 public:
  struct Options {
    std::uint64_t slot_timeout_ns = 1'000'000'000;  ///< how long a slot may be written to
    std::uint64_t calls_per_second = 0;             ///< the rate limit; 0: none
    bool tsc_usable = false;                        ///< as in the settings; else event times are 0
    /// The thread that made a call, 0 if unknown.
    std::function<pid_t(std::uint64_t thread_base, std::uint64_t rsp)> thread_of = {};
    /// The return address of a site; 0 for a site that is not the plan's, which makes the capture damaged.
    std::function<std::uint64_t(std::uint32_t site)> return_address_of = {};
  };
  /// Valid during the call only; it may be moved from.
  using Consumer = std::function<void(RingCapture&)>;

  /// `ring`: as this process has it mapped, formatted, at least shape.bytes; must outlive the reader, which
  /// is its only one.
  RingReader(std::span<std::byte> ring, const RingShape& shape, Options options);

  /// Hands over every complete capture, those of one thread in their order and, within one poll, oldest claim
  /// first; refills the rate limit's tokens, gives up slots that timed out. Returns how many captures it
  /// handed over. `now_ns`: CLOCK_MONOTONIC.
  std::size_t poll(std::uint64_t now_ns, const Consumer& consumer);

  /// How long to wait before the next poll, ns: from 0.2 ms to 10 ms by how full the ring was found.
  [[nodiscard]] std::uint64_t pause_ns() const { return pause_ns_; }

  /// The last poll: what is still being written is given up and counts as lost. For when ControlPage::inside
  /// was read as 0 after disarming, or waiting for that has taken long enough.
  std::size_t finish(std::uint64_t now_ns, const Consumer& consumer);

  /// All slots that were given up may be used again. Only for when it is proven that no thread is in a stub:
  /// all are stopped, and no pc, saved ones included, points there; or ControlPage::inside was 0 while not
  /// armed.
  void reclaim_given_up();

  [[nodiscard]] RingCounts counts() const;

 private:
  struct Writing {
    std::uint64_t state;
    std::uint64_t since_ns;
  };
  [[nodiscard]] RingHead& head() const { return *reinterpret_cast<RingHead*>(ring_.data()); }
  [[nodiscard]] std::uint64_t& state(std::uint64_t index) const;
  bool read_slot(std::uint64_t index, std::uint64_t claim);
  void refill_tokens(std::uint64_t now_ns);
  bool give_up_in_time(std::uint64_t index, std::uint64_t state, std::uint64_t now_ns);
  void give_up(std::uint64_t index, std::uint64_t state);
  void notice_given_back(std::uint64_t index, std::uint64_t state);
  void adapt_pause(std::size_t found);

  std::span<std::byte> ring_;
  RingShape shape_;
  Options options_;
  TscClock clock_;
  std::uint64_t clock_corrected_ns_ = 0;
  std::uint64_t tokens_filled_ns_ = 0;
  std::uint64_t pause_ns_;
  std::unordered_map<std::uint64_t, Writing> writing_;         ///< by slot
  std::unordered_map<std::uint64_t, std::uint64_t> given_up_;  ///< slot -> its state when retired
  RingCapture current_;
  RingCounts counts_;
};

}  // namespace whomap
