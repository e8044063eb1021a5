// SPDX-License-Identifier: Apache-2.0
// Functions that leave the stack by a jump: one_way -> left -> bottom, and with an argument
// two_ways -> fork -> (left or right) -> bottom, where the way taken cannot be known.
#include <unistd.h>

#define SEPARATE __attribute__((noinline)) static

volatile int sink;

SEPARATE void block(void) {
  char byte;
  if (write(STDOUT_FILENO, "blocked\n", 8) != 8) _exit(1);
  sink += (int)read(STDIN_FILENO, &byte, 1);
}

SEPARATE int bottom(int x) {
  block();
  return x + sink;
}

SEPARATE int left(int x) {
  sink += 1;
  return bottom(x + 1);
}

SEPARATE int right(int x) {
  sink -= 1;
  return bottom(x + 2);
}

SEPARATE int fork_in_the_way(int x) {
  sink += 2;
  return x > 1 ? left(x) : right(x);
}

SEPARATE int one_way(int x) {
  sink += 3;
  return left(x * 2);
}

SEPARATE int two_ways(int x) {
  sink += 4;
  return fork_in_the_way(x * 2);
}

int main(int argc, char** argv) {
  (void)argv;
  sink += argc > 1 ? two_ways(argc) + 1 : one_way(argc) + 2;
  return 0;
}
