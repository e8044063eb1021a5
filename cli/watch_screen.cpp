// SPDX-License-Identifier: Apache-2.0
#include "cli/watch_screen.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#define NCURSES_NOMACROS
#include <curses.h>
#include <term.h>
#undef lines  // macros of term.h that NCURSES_NOMACROS leaves
#undef columns

namespace whomap::cli {
namespace {

constexpr std::array fatal_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr short growing_pair = 1;

/// What a signal handler needs to give the terminal back: only write and tcsetattr may be called there.
struct Rescue {
  termios mode{};
  std::array<char, 256> text{};
  std::size_t length = 0;
} rescue;

extern "C" void rescue_terminal(int number) {
  if (::write(STDOUT_FILENO, rescue.text.data(), rescue.length) >= 0)
    ::tcsetattr(STDOUT_FILENO, TCSANOW, &rescue.mode);
  ::raise(number);  // the handler was reset: this ends the program as it would have ended
}

void prepare_rescue() {
  ::tcgetattr(STDOUT_FILENO, &rescue.mode);
  std::string text;
  for (const char* const name : {"sgr0", "cnorm", "rmcup"}) {
    const char* const sequence = ::tigetstr(name);
    if (sequence != nullptr && sequence != reinterpret_cast<const char*>(-1)) text += sequence;
  }
  rescue.length = std::min(text.size(), rescue.text.size());
  std::memcpy(rescue.text.data(), text.data(), rescue.length);
  struct sigaction action {};
  action.sa_handler = rescue_terminal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int number : fatal_signals) ::sigaction(number, &action, nullptr);
}

class CursesScreen : public Screen {
 public:
  CursesScreen(SCREEN* screen, bool color) : screen_(screen) {
    ::cbreak();
    ::noecho();
    ::nodelay(stdscr, TRUE);
    ::curs_set(0);
    color_ = color && ::has_colors() == TRUE && ::start_color() == OK;
    if (color_) {
      ::use_default_colors();
      ::init_pair(growing_pair, COLOR_RED, -1);
    }
  }
  ~CursesScreen() override {
    ::endwin();
    ::delscreen(screen_);
    for (const int number : fatal_signals) ::signal(number, SIG_DFL);
  }
  CursesScreen(const CursesScreen&) = delete;
  CursesScreen& operator=(const CursesScreen&) = delete;

  [[nodiscard]] std::size_t width() const override {
    return static_cast<std::size_t>(std::max(getmaxx(stdscr), 1));
  }
  [[nodiscard]] std::size_t height() const override {
    return static_cast<std::size_t>(std::max(getmaxy(stdscr), 1));
  }

  void draw(const std::vector<WatchLine>& lines) override {
    ::werase(stdscr);
    const std::size_t shown = std::min(lines.size(), height());
    for (std::size_t i = 0; i < shown; ++i) {
      attr_t look = A_NORMAL;
      if (lines[i].style == WatchLine::Style::head) look = A_REVERSE;
      if (lines[i].style == WatchLine::Style::growing)
        look = color_ ? (A_BOLD | static_cast<attr_t>(COLOR_PAIR(growing_pair))) : A_BOLD;
      ::wattrset(stdscr, static_cast<int>(look));
      std::string text = lines[i].text;
      if (lines[i].style == WatchLine::Style::head)
        text.append(width() - std::min(width(), text.size()), ' ');
      ::mvwaddstr(stdscr, static_cast<int>(i), 0, text.c_str());
    }
    ::wattrset(stdscr, A_NORMAL);
    ::wrefresh(stdscr);
  }

  std::optional<int> key() override {
    const int key = ::wgetch(stdscr);
    return key == ERR ? std::nullopt : std::optional(key);
  }

  void resized() override {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return;
    ::resizeterm(size.ws_row, size.ws_col);
    ::wclear(stdscr);
  }

  void stop() override {
    ::endwin();
    ::raise(SIGSTOP);  // SIGTSTP itself is blocked, to be read from a descriptor
    resized();
    ::wrefresh(stdscr);
  }

 private:
  SCREEN* screen_;
  bool color_ = false;
};

}  // namespace

std::unique_ptr<Screen> Screen::open(bool color) {
  if (::isatty(STDOUT_FILENO) != 1 || ::isatty(STDIN_FILENO) != 1) return nullptr;
  if (::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return nullptr;
  const char* const kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb") return nullptr;
  ::use_env(FALSE);  // LINES and COLUMNS of the environment do not follow a resize
  int problem = 0;
  if (::setupterm(kind, STDOUT_FILENO, &problem) != OK) return nullptr;
  if (::tigetstr("cup") == nullptr || ::tigetstr("cup") == reinterpret_cast<char*>(-1)) return nullptr;
  prepare_rescue();
  SCREEN* const screen = ::newterm(nullptr, stdout, stdin);
  if (screen == nullptr) return nullptr;
  auto opened = std::make_unique<CursesScreen>(screen, color);
  opened->resized();  // without the environment curses takes the size in terminfo, 80x24
  return opened;
}

}  // namespace whomap::cli
