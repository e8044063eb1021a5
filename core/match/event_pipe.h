// SPDX-License-Identifier: Apache-2.0
// Events from the thread that reads them to the one that works on them: reading a trace and keeping a ledger
// cost about the same, and a machine has two processors.
#pragma once

#include <functional>
#include <span>

#include "core/trace/records.h"

namespace whomap {

using EventSink = std::function<void(const TraceEvent&)>;

/// Runs `produce` on a thread of its own; the events that it gives to its argument reach `consume` on the
/// caller's thread, in that order, some hundred at once. Returns when both are done. At most some thousand
/// events are on their way. An exception of either ends both and comes out here. Where no thread can be had,
/// both run on the caller's.
void pipe_events(const std::function<void(const EventSink& put)>& produce,
                 const std::function<void(std::span<const TraceEvent>)>& consume);

}  // namespace whomap
