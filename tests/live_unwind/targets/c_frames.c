// SPDX-License-Identifier: Apache-2.0
// Blocks at the bottom of the stack that its argument names: deep, alloca, vla, signal, altstack, align, thread.
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile int sink;

__attribute__((noinline)) static void block(void) {
  char byte;
  if (write(STDOUT_FILENO, "blocked\n", 8) != 8) _exit(1);
  sink += (int)read(STDIN_FILENO, &byte, 1);
}

static inline __attribute__((always_inline)) void inlined_block(int depth) {
  if (depth > 0) sink += depth;
  block();
  sink += depth;
}

__attribute__((noinline)) static int deep(int depth) {
  if (depth == 0) {
    inlined_block(depth);
    return sink;
  }
  const int below = deep(depth - 1);
  sink += below;  // keeps the compiler from making a loop of this
  return below + depth;
}

__attribute__((noinline)) static int with_alloca(int size) {
  char* const room = alloca((size_t)size);
  memset(room, size, (size_t)size);
  inlined_block(size);
  return room[size / 2];
}

__attribute__((noinline)) static int with_vla(int size) {
  int room[size];
  for (int i = 0; i < size; ++i) room[i] = sink + i;
  block();
  return room[size / 3];
}

// A stack aligned by more than the ABI promises needs a DWARF expression for its CFA.
__attribute__((noinline)) static int with_alignment(int size) {
  _Alignas(128) volatile int room[64];
  char* const more = alloca((size_t)size);
  memset(more, 1, (size_t)size);
  for (int i = 0; i < 64; ++i) room[i] = i + size;
  block();
  return room[size % 64] + more[0];
}

static void on_signal(int number) {
  sink += number;
  block();
}

__attribute__((noinline)) static int interrupted(int times) {
  for (int i = 0; i < times; ++i) sink += i;
  raise(SIGUSR1);
  return sink;
}

// The signal arrives at the very first instruction of a function: looked up at pc - 1, it would be another.
__attribute__((noinline)) static int faults(volatile int* nowhere) { return *nowhere; }

static void* thread_main(void* argument) {
  sink += with_alloca(*(int*)argument);
  return NULL;
}

int main(int argc, char** argv) {
  const char* const kind = argc > 1 ? argv[1] : "deep";
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGSEGV, &action, NULL);
  if (!strcmp(kind, "deep")) sink += deep(argc > 2 ? atoi(argv[2]) : 300);
  if (!strcmp(kind, "alloca")) sink += with_alloca(1000);
  if (!strcmp(kind, "vla")) sink += with_vla(500);
  if (!strcmp(kind, "align")) sink += with_alignment(500);
  if (!strcmp(kind, "signal")) sink += interrupted(10);
  if (!strcmp(kind, "fault")) sink += faults(NULL);
  if (!strcmp(kind, "altstack")) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    sink += interrupted(10);
  }
  if (!strcmp(kind, "thread")) {
    int size = 300;
    pthread_t thread;
    pthread_create(&thread, NULL, thread_main, &size);
    pthread_join(thread, NULL);
  }
  return 0;
}
