// SPDX-License-Identifier: Apache-2.0
// Maps memory for ever under UCX's hooks, once its standard input has said so.
#include <stdio.h>
#include <sys/mman.h>
#include <ucm/api/ucm.h>
#include <unistd.h>

static void on_event(ucm_event_type_t type, ucm_event_t* event, void* argument) {
  (void)type;
  (void)event;
  (void)argument;
}

__attribute__((noinline)) static int map_memory(void) {
  void* const memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  munmap(memory, 65536);
  return 0;
}

int main(void) {
  char byte;
  ucm_set_event_handler(UCM_EVENT_VM_MAPPED | UCM_EVENT_VM_UNMAPPED, 0, on_event, NULL);
  if (write(STDOUT_FILENO, "blocked\n", 8) != 8) return 1;
  if (read(STDIN_FILENO, &byte, 1) != 1) return 1;
  for (;;) {
    if (map_memory() != 0) return 1;
    usleep(1000);
  }
}
