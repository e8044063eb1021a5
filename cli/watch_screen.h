// SPDX-License-Identifier: Apache-2.0
// The terminal as a screen to draw on. Only its implementation includes ncurses, whose macros would reach
// far.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/report/watch_text.h"

namespace whomap::cli {

class Screen {
 public:
  /// Takes over the terminal on standard output and input. nullptr where that is no terminal to draw on: not
  /// a terminal at all, one of unknown kind, or one whose foreground is another job.
  static std::unique_ptr<Screen> open(bool color);
  /// The terminal is as it was before; also when the program ends by a fault.
  virtual ~Screen() = default;

  [[nodiscard]] virtual std::size_t width() const = 0;
  [[nodiscard]] virtual std::size_t height() const = 0;
  /// Replaces what is shown; lines beyond the height are left out.
  virtual void draw(const std::vector<WatchLine>& lines) = 0;
  /// A key that was pressed, nullopt when there is none.
  virtual std::optional<int> key() = 0;
  /// The terminal has another size (SIGWINCH).
  virtual void resized() = 0;
  /// Gives the terminal back for the time of a job-control stop, and stops this process until SIGCONT.
  virtual void stop() = 0;
};

}  // namespace whomap::cli
