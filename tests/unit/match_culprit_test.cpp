// SPDX-License-Identifier: Apache-2.0
#include "core/match/culprit.h"

#include <gtest/gtest.h>

#include "tests/unit/match_fixture.h"

namespace whomap {
namespace {

std::string culprit_name(const Stack& stack, bool maps = true) {
  const auto culprit = find_culprit(stack, maps);
  return culprit ? frame_name(stack.frames[culprit->frame]) : "none";
}

// The chains are those of ucx.md, measured on Debian's UCX 1.13.1.
TEST(Culprit, TheApplicationBehindHooksThatPassThrough) {
  const Stack stack = make_stack(1, {{"libc.so.6", "syscall"},
                                     {"libucm.so.0", "ucm_orig_mmap_syscall"},
                                     {"libucm.so.0", ""},
                                     {"libucm.so.0", "ucm_event_dispatch"},
                                     {"libucm.so.0", "ucm_mmap"},
                                     {"ucx_case", "leak_mmap"},
                                     {"ucx_case", "main"}});
  const auto culprit = find_culprit(stack, true);
  ASSERT_TRUE(culprit.has_value());
  EXPECT_EQ(culprit->frame, 5U);
  EXPECT_EQ(culprit->hook_frame, 1U);
  EXPECT_EQ(culprit->unmap_frame, std::nullopt);
}

TEST(Culprit, TheHookLibraryThatMapsInsideAnUnmap) {
  const Stack stack = make_stack(1, {{"libc.so.6", "syscall"},
                                     {"libucm.so.0", "ucm_orig_mmap_syscall"},
                                     {"libucs.so.0", ""},
                                     {"libucs.so.0", "ucs_mpool_grow"},
                                     {"libucs.so.0", "ucs_mpool_get_grow"},
                                     {"libucs.so.0", ""},
                                     {"libucm.so.0", "ucm_event_dispatch"},
                                     {"libucm.so.0", "ucm_munmap"},
                                     {"ucx_case", "scratch_put"},
                                     {"ucx_case", "handle_request"},
                                     {"ucx_case", "main"}});
  const auto culprit = find_culprit(stack, true);
  ASSERT_TRUE(culprit.has_value());
  EXPECT_EQ(frame_name(stack.frames[culprit->frame]), "ucs_mpool_grow");
  EXPECT_EQ(culprit->unmap_frame, 7U);
  // The same chain ending a mapping is the caller's own affair.
  EXPECT_EQ(culprit_name(stack, false), "scratch_put");
}

// D01: one library of any name, whose hooked munmap maps.
TEST(Culprit, AnyLibraryThatMapsInsideAnUnmap) {
  EXPECT_EQ(culprit_name(make_stack(1, {{"libc.so.6", "syscall"},
                                        {"libhook.so", "queue_push"},
                                        {"libhook.so", "hooked_munmap"},
                                        {"app", "arena_free"},
                                        {"app", "main"}})),
            "queue_push");
  EXPECT_EQ(culprit_name(
                make_stack(1, {{"libc.so.6", "syscall"}, {"libhook.so", "munmap"}, {"app", "arena_free"}})),
            "munmap");
}

TEST(Culprit, MallocIsNamedAndItsCallerBlamed) {
  const Stack stack = make_stack(1, {{"libc.so.6", "__mmap64"},
                                     {"libc.so.6", "sysmalloc_mmap.isra.0"},
                                     {"libc.so.6", "sysmalloc"},
                                     {"libc.so.6", "_int_malloc"},
                                     {"libc.so.6", "__GI___libc_malloc"},
                                     {"libstdc++.so.6", "operator new(unsigned long)"},
                                     {"app", "grow_table"},
                                     {"app", "main"}});
  const auto culprit = find_culprit(stack, true);
  ASSERT_TRUE(culprit.has_value());
  EXPECT_EQ(culprit->frame, 6U);
  ASSERT_TRUE(culprit->allocator_frame.has_value());
  EXPECT_EQ(*culprit->allocator_frame, 5U);
}

TEST(Culprit, MallocBehindHooks) {
  const Stack stack = make_stack(1, {{"libc.so.6", "syscall"},
                                     {"libucm.so.0", "ucm_mmap"},
                                     {"libc.so.6", "sysmalloc"},
                                     {"libc.so.6", "malloc"},
                                     {"ucx_case", "leak_malloc"}});
  const auto culprit = find_culprit(stack, true);
  ASSERT_TRUE(culprit.has_value());
  EXPECT_EQ(culprit->frame, 4U);
  EXPECT_TRUE(culprit->hook_frame && culprit->allocator_frame);
}

TEST(Culprit, ThreadsAndLibraries) {
  const Stack thread = make_stack(1, {{"libc.so.6", "mmap64"},
                                      {"libc.so.6", "allocate_stack"},
                                      {"libc.so.6", "pthread_create@@GLIBC_2.34"},
                                      {"app", "start_poller"}});
  EXPECT_EQ(culprit_name(thread), "start_poller");
  EXPECT_TRUE(find_culprit(thread, true)->creates_thread);
  const Stack plugin = make_stack(1, {{"ld-linux-x86-64.so.2", "mmap64"},
                                      {"ld-linux-x86-64.so.2", "_dl_map_segments"},
                                      {"libc.so.6", "dlopen@@GLIBC_2.34"},
                                      {"app", "load_plugin"}});
  EXPECT_EQ(culprit_name(plugin), "load_plugin");
  EXPECT_TRUE(find_culprit(plugin, true)->loads_library);
}

TEST(Culprit, AStaticProgramHoldsLibcItself) {
  EXPECT_EQ(culprit_name(make_stack(
                1, {{"app", "__mmap"}, {"app", "_int_malloc"}, {"app", "malloc"}, {"app", "work"}})),
            "work");
}

TEST(Culprit, NamesThatOnlyLookAlike) {
  EXPECT_EQ(culprit_name(make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "my_malloc_wrapper"}})),
            "my_malloc_wrapper");
  EXPECT_EQ(culprit_name(make_stack(1, {{"libc.so.6", "mmap64"}, {"libcurl.so.4", "f"}})), "f");
  EXPECT_EQ(culprit_name(make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "premunmap"}, {"app", "g"}})),
            "premunmap");
}

TEST(Culprit, NoneWhereNoFrameIsTheProgramsOwn) {
  EXPECT_EQ(culprit_name(make_stack(1, {})), "none");
  EXPECT_EQ(culprit_name(make_stack(1, {{"libc.so.6", "syscall"}})), "none");
}

TEST(Culprit, FramesWithoutNames) {
  Frame frame;
  frame.module = "/opt/my lib.so (deleted)";
  frame.offset = 0x1234;
  EXPECT_EQ(frame_place(frame), "my lib.so+0x1234");
  frame.function = "f";
  EXPECT_EQ(frame_place(frame), "f (my lib.so)");
  frame.file = "/src/f.c";
  frame.line = 7;
  EXPECT_EQ(frame_place(frame), "f (f.c:7)");
}

}  // namespace
}  // namespace whomap
