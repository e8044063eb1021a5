// SPDX-License-Identifier: Apache-2.0
#include "core/match/event_pipe.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace whomap {
namespace {

using Batch = std::vector<TraceEvent>;
constexpr std::size_t batch_size = 1024, most_batches = 8;

/// Ends the producer when the consumer has failed.
struct Abandoned {};

class Queue {
 public:
  /// Takes the events out of `batch`. Waits while the queue is full.
  void put(Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return full_.size() < most_batches || abandoned_; });
    if (abandoned_) throw Abandoned{};
    full_.push_back(std::exchange(batch, {}));
    if (!empty_.empty()) {
      batch = std::move(empty_.back());
      empty_.pop_back();
    }
    changed_.notify_all();
  }

  /// Waits for the next batch; false when there is none any more.
  bool take(Batch& batch) {
    batch.clear();
    std::unique_lock lock(mutex_);
    if (batch.capacity() != 0) empty_.push_back(std::move(batch));
    changed_.wait(lock, [&] { return !full_.empty() || closed_; });
    if (full_.empty()) return false;
    batch = std::move(full_.front());
    full_.pop_front();
    changed_.notify_all();
    return true;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  void abandon() {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> full_;
  std::vector<Batch> empty_;  ///< to be used again
  bool closed_ = false, abandoned_ = false;
};

}  // namespace

void pipe_events(const std::function<void(const EventSink& put)>& produce,
                 const std::function<void(std::span<const TraceEvent>)>& consume) {
  Queue queue;
  std::exception_ptr problem;
  const auto read = [&] {
    try {
      Batch batch;
      produce([&](const TraceEvent& event) {
        if (batch.capacity() == 0) batch.reserve(batch_size);
        batch.push_back(event);
        if (batch.size() == batch_size) queue.put(batch);
      });
      if (!batch.empty()) queue.put(batch);
    } catch (const Abandoned&) {
    } catch (...) {
      problem = std::current_exception();
    }
    queue.close();
  };
  std::thread producer;
  try {
    producer = std::thread(read);
  } catch (const std::system_error&) {  // no room for a thread (RLIMIT_NPROC, pids of a cgroup): one by one
    return produce([&](const TraceEvent& event) { consume({&event, 1}); });
  }
  try {
    for (Batch batch; queue.take(batch);) consume(batch);
  } catch (...) {
    queue.abandon();
    producer.join();
    throw;
  }
  producer.join();
  if (problem) std::rethrow_exception(problem);
}

}  // namespace whomap
