// SPDX-License-Identifier: Apache-2.0
// Blocks below templates, lambdas, inlined members, virtual calls and library callbacks.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {
volatile int sink;

[[gnu::noinline]] void block() {
  char byte;
  if (write(STDOUT_FILENO, "blocked\n", 8) != 8) _exit(1);
  sink = sink + static_cast<int>(read(STDIN_FILENO, &byte, 1));
}
}  // namespace

namespace arena {

template <class T, int Count>
struct Pool {
  std::vector<T> items;
  [[gnu::noinline]] T grow(const T& by) const {
    block();
    return items.empty() ? by : items[0];
  }
  T get_inlined(const T& by) { return grow(by) + grow_more(by); }
  [[gnu::always_inline]] T grow_more(const T& by) { return by; }
};

struct Base {
  virtual ~Base() = default;
  virtual int run(int depth) = 0;
};

struct Derived final : Base {
  Pool<long, 16> pool;
  [[gnu::noinline]] int run(int depth) override {
    if (depth > 0) return run(depth - 1) + static_cast<int>(pool.items.size());
    const int got = static_cast<int>(pool.get_inlined(depth));
    sink = sink + got;
    return got;
  }
};

}  // namespace arena

template <class Function, class... Arguments>
[[gnu::noinline]] auto call(Function&& function, Arguments&&... arguments) {
  const auto result = function(arguments...);
  sink = sink + 1;
  return result;
}

struct Counter {
  int operator()(const std::map<std::string, int>& values) const {
    int total = 0;
    for (const auto& [name, value] : values)
      total += call([&](int by) { return by + nested(name, value); }, value);
    return total;
  }
  [[gnu::noinline]] static int nested(const std::string& name, int value) {
    std::vector<int> numbers{3, 1, 2};
    std::sort(numbers.begin(), numbers.end(), [&](int a, int b) {
      static bool done = false;
      if (!done) {
        done = true;
        arena::Derived derived;
        arena::Base* const base = &derived;
        sink = sink + base->run(value) + static_cast<int>(name.size());
      }
      return a < b;
    });
    return numbers[0];
  }
};

int main() {
  const std::function<int(const std::map<std::string, int>&)> function = Counter{};
  sink = sink + function({{"one", 1}, {"two", 2}});
  return 0;
}
