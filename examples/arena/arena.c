/* SPDX-License-Identifier: Apache-2.0
 * A service whose requests work in an arena like the one of ONNX Runtime: it grows in steps, each double the last,
 * to what the largest request needs, and gives nothing back. Each request needs STEP KiB (512) more than the one before.
 *   arena MODE FIFO [STEP]  creates FIFO and FIFO.done; a line written to the first is a request, which is answered
 *                       by "done" on the second. One operation is: echo > FIFO; read done < FIFO.done
 *     leak              the arena as it is
 *     placebo           the fix that logs "patched" and takes no effect, as in the investigation
 *     fixed             the arena is off: each request maps its buffer and unmaps it again
 * It says "ready" on standard output. 200 requests: RssAnon about 230 MiB with the arena. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
  int use_arena;
};

static unsigned char *arena_piece;
static size_t arena_bytes;

static void *map(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  return memory;
}

/* The old piece stays mapped: it may come in useful for smaller requests, which never come. */
__attribute__((noinline)) static void arena_extend(size_t bytes) {
  if (arena_bytes == 0) arena_bytes = 1 << 20;
  while (arena_bytes < bytes) arena_bytes *= 2;
  arena_piece = map(arena_bytes);
}

__attribute__((noinline)) static void run_in_arena(size_t bytes) {
  if (bytes > arena_bytes) arena_extend(bytes);
  memset(arena_piece, 1, bytes);
}

__attribute__((noinline)) static void run_without_arena(size_t bytes) {
  void *buffer = map(bytes);
  memset(buffer, 1, bytes);
  munmap(buffer, bytes);
}

/* The caller always brings options of its own, so the bounded ones are never used. */
static const struct options *patched(const struct options *callers, const struct options *bounded) {
  fputs("runtime patched: arena bounded\n", stderr);
  return callers == NULL ? bounded : callers;
}

static size_t step_bytes = 512 << 10;

static void serve(const struct options *options) {
  static size_t bytes;
  bytes += step_bytes;
  if (options->use_arena) run_in_arena(bytes);
  else run_without_arena(bytes);
}

static void make_fifo(const char *path) {
  if (mkfifo(path, 0600) == 0 || errno == EEXIST) return;
  perror(path);
  exit(1);
}

int main(int count, char **arguments) {
  static const struct options with_arena = {1};
  static const struct options without_arena = {0};
  const char *mode = count == 3 || count == 4 ? arguments[1] : "";
  const struct options *options = NULL;
  if (strcmp(mode, "leak") == 0) options = &with_arena;
  if (strcmp(mode, "placebo") == 0) options = patched(&with_arena, &without_arena);
  if (strcmp(mode, "fixed") == 0) options = &without_arena;
  if (count == 4) step_bytes = strtoul(arguments[3], NULL, 10) << 10;
  if (options == NULL || step_bytes == 0) {
    fputs("usage: arena leak|placebo|fixed FIFO [STEP]\n", stderr);
    return 2;
  }
  char done[4096];
  snprintf(done, sizeof done, "%s.done", arguments[2]);
  make_fifo(done);
  make_fifo(arguments[2]);
  /* With an end of our own at the other side neither FIFO ever ends; an answer that nobody reads is dropped. */
  const int requests = open(arguments[2], O_RDWR);
  const int answers = open(done, O_RDWR | O_NONBLOCK);
  if (requests < 0 || answers < 0) {
    perror(arguments[2]);
    return 1;
  }
  puts("ready");
  fflush(stdout);
  char line[4096];
  for (ssize_t got; (got = read(requests, line, sizeof line)) > 0;) {
    for (ssize_t i = 0; i < got; ++i) {
      if (line[i] != '\n') continue;
      serve(options);
      if (write(answers, "done\n", 5) != 5 && errno != EAGAIN) perror(done);
    }
  }
  return 0;
}
