// SPDX-License-Identifier: Apache-2.0
// Who is an allocator, and so not the culprit: the rules of frames.json, and the user's.
#include <gtest/gtest.h>

#include "core/match/culprit.h"
#include "core/match/signature_file.h"
#include "tests/unit/match_fixture.h"

namespace whomap {
namespace {

FrameRole role(const std::string& module, const std::string& function) {
  return role_of(make_stack(1, {{module, function}}).frames[0]);
}

TEST(FrameRoles, WrappersOfMallocAreAllocators) {
  for (const char* name : {"malloc",
                           "__GI___libc_malloc",
                           "_int_malloc.isra.0",
                           "malloc@@GLIBC_2.2.5",
                           "zmalloc",
                           "ztrymalloc_usable_internal",
                           "zcalloc_num",
                           "zrealloc",
                           "je_malloc",
                           "_rjem_je_arena_ralloc",
                           "tc_malloc",
                           "tcmalloc::CentralFreeList::Populate()",
                           "mi_malloc_aligned",
                           "_mi_os_alloc",
                           "_mi_malloc_generic",
                           "g_malloc0",
                           "g_try_realloc_n",
                           "g_slice_alloc",
                           "xmalloc",
                           "xcalloc",
                           "xrealloc",
                           "xstrdup",
                           "operator new(unsigned long)",
                           "operator new[](unsigned long, std::nothrow_t const&)",
                           "PyMem_Malloc",
                           "PyMem_RawCalloc",
                           "_PyObject_GC_New",
                           "PyObject_Malloc",
                           "palloc",
                           "palloc0",
                           "repalloc",
                           "MemoryContextAllocZero",
                           "AllocSetAlloc",
                           "ngx_palloc_large",
                           "apr_palloc",
                           "sqlite3MemMalloc",
                           "CRYPTO_zalloc",
                           "luaM_realloc_",
                           "_emalloc",
                           "zend_mm_alloc_huge",
                           "ruby_xmalloc2",
                           "Perl_safesysmalloc",
                           "__rust_alloc",
                           "__rdl_realloc",
                           "alloc::raw_vec::finish_grow",
                           "runtime.mallocgc",
                           "v8::internal::Heap::AllocateRaw(int)",
                           "node::NodeArrayBufferAllocator::Allocate(unsigned long)"})
    EXPECT_EQ(role("app", name), FrameRole::allocator) << name;
}

TEST(FrameRoles, NamesThatOnlyLookAlikeAreTheProgramsOwn) {
  for (const char* name :
       {"my_malloc", "zmq_malloc_pool", "xmalloc_stats_dump", "mi_create", "mi_rkey", "g_application_run",
        "palloc_report", "newsletter", "operator+", "runtime.main", "main.runtime", "je",
        "PyMemoryView_FromObject", "calloc_all_the_things", "free_list_push"})
    EXPECT_EQ(role("app", name), FrameRole::program) << name;
}

TEST(FrameRoles, LibrariesAndTheLoader) {
  EXPECT_EQ(role("libjemalloc.so.2", ""), FrameRole::allocator);
  EXPECT_EQ(role("libjemalloc.so.2", "anything"), FrameRole::allocator);
  EXPECT_EQ(role("libucm.so.0", "ucm_mmap"), FrameRole::hook);
  EXPECT_EQ(role("libucm.so.0", "malloc"), FrameRole::hook)
      << "the library that patched it stands in between";
  EXPECT_EQ(role("ld-linux-x86-64.so.2", "malloc"), FrameRole::loader);
  EXPECT_EQ(role("libc.so.6", "mmap64"), FrameRole::libc);
  EXPECT_EQ(role("libjvm.so", "os::pd_commit_memory(char*, unsigned long, bool)"), FrameRole::allocator);
  EXPECT_EQ(role("app", "os::read_config"), FrameRole::program) << "a name of HotSpot's, in another module";
}

TEST(FrameRoles, OfRuntimes) {
  const auto runtime = [](const std::string& module, const std::string& function) {
    const auto culprit =
        find_culprit(make_stack(1, {{"libc.so.6", "mmap64"}, {module, function}, {"app", "work"}}), true);
    return culprit ? culprit->runtime : std::nullopt;
  };
  EXPECT_EQ(runtime("python3.11", "_PyObject_ArenaMmap"), Runtime::cpython);
  EXPECT_EQ(runtime("app", "runtime.(*mheap).sysAlloc"), Runtime::go);
  EXPECT_EQ(runtime("libjvm.so", "ReservedSpace::reserve(unsigned long)"), Runtime::jvm);
  EXPECT_EQ(runtime("node", "v8::base::OS::Allocate(void*)"), Runtime::v8);
  EXPECT_EQ(runtime("libc.so.6", "malloc"), std::nullopt);
}

// Redis: the frames as jemalloc in a shared library has them.
TEST(FrameRoles, TheCallerOfAWrapperIsTheCulprit) {
  const Stack stack = make_stack(1, {{"libc.so.6", "mmap64"},
                                     {"libjemalloc.so.2", ""},
                                     {"libjemalloc.so.2", "malloc"},
                                     {"redis-check-rdb", "zmalloc"},
                                     {"redis-check-rdb", "createStringObject"},
                                     {"redis-check-rdb", "setCommand"}});
  const auto culprit = find_culprit(stack, true);
  ASSERT_TRUE(culprit.has_value());
  EXPECT_EQ(culprit->frame, 4U);
  EXPECT_EQ(culprit->allocator_frame, 3U);
}

std::string culprit_of(const std::vector<std::pair<std::string, std::string>>& frames) {
  const Stack stack = make_stack(1, frames);
  const auto culprit = find_culprit(stack, true);
  if (!culprit) return "none";
  const std::string name = frame_name(stack.frames[culprit->frame]);
  return culprit->allocator_frame ? name + " through " + frame_name(stack.frames[*culprit->allocator_frame])
                                  : name;
}

TEST(FrameRoles, MuslInAStaticProgram) {
  EXPECT_EQ(culprit_of({{"app", "__libc_malloc_impl"}, {"app", "grow"}, {"app", "main"}}),
            "grow through __libc_malloc_impl");
  EXPECT_EQ(culprit_of({{"app", "mmap64"},
                        {"app", "alloc_group"},
                        {"app", "alloc_slot"},
                        {"app", "__libc_malloc_impl"},
                        {"app", "malloc"},
                        {"app", "grow"}}),
            "grow through malloc");
  EXPECT_EQ(culprit_of({{"app", "__brk"}, {"app", "__expand_heap"}, {"app", "malloc"}, {"app", "grow"}}),
            "grow through malloc");
  EXPECT_EQ(culprit_of({{"app", "__malloc_alloc_meta"}, {"app", "alloc_slot"}, {"app", "grow"}}),
            "grow through alloc_slot");
}

TEST(FrameRoles, PackagesOfGoThatOnlyEnterTheKernel) {
  EXPECT_EQ(culprit_of({{"app", "runtime/internal/syscall.Syscall6"},
                        {"app", "syscall.RawSyscall6"},
                        {"app", "syscall.Syscall6"},
                        {"app", "syscall.mmap"},
                        {"app", "syscall.(*mmapper).Mmap"},
                        {"app", "syscall.Mmap"},
                        {"app", "main.rawMap"},
                        {"app", "main.main"}}),
            "main.rawMap");
  EXPECT_EQ(culprit_of({{"app", "internal/runtime/syscall.Syscall6"},
                        {"app", "syscall.RawSyscall6"},
                        {"app", "golang.org/x/sys/unix.(*mmapper).Mmap"},
                        {"app", "golang.org/x/sys/unix.Mmap"},
                        {"app", "example.com/cache.(*File).grow"}}),
            "example.com/cache.(*File).grow");
  EXPECT_EQ(culprit_of({{"app", "runtime/internal/syscall.Syscall6.abi0"},
                        {"app", "example.com/syscall.Grow"},
                        {"app", "main.main"}}),
            "example.com/syscall.Grow");
}

TEST(FrameRoles, ClassesOfTheJdkAskForWhoeverCallsThem) {
  EXPECT_EQ(culprit_of({{"libc.so.6", "malloc"},
                        {"libjvm.so", "os::malloc(unsigned long, MEMFLAGS)"},
                        {"libjvm.so", "Unsafe_AllocateMemory0"},
                        {"", "long jdk.internal.misc.Unsafe.allocateMemory0(long)"},
                        {"", "java.nio.ByteBuffer java.nio.ByteBuffer.allocateDirect(int)"},
                        {"", "java.nio.ByteBuffer D.cacheDirect(java.lang.String)"},
                        {"", "void D.main(java.lang.String[])"}}),
            "java.nio.ByteBuffer D.cacheDirect(java.lang.String) through Unsafe_AllocateMemory0");
  EXPECT_EQ(culprit_of({{"libc.so.6", "malloc"},
                        {"libzip.so", "Java_java_util_zip_Inflater_init"},
                        {"", "Ljava/util/zip/Inflater;::init"},
                        {"", "Lcom/shop/Cart;::load"}}),
            "Lcom/shop/Cart;::load through malloc");
  // What leads from Java into the VM and back maps nothing.
  EXPECT_EQ(culprit_of({{"libc.so.6", "malloc"},
                        {"libjvm.so", "os::malloc(unsigned long, MEMFLAGS)"},
                        {"", "void java.lang.Thread.run()"},
                        {"", "StubRoutines (1)"},
                        {"libjvm.so", "JavaCalls::call_helper(JavaValue*, methodHandle const&)"}}),
            "os::malloc(unsigned long, MEMFLAGS) through os::malloc(unsigned long, MEMFLAGS)");
}

TEST(FrameRoles, TheWayFromJavaScriptIntoNativeCodeIsNoMemoryManager) {
  EXPECT_EQ(culprit_of(
                {{"libc.so.6", "malloc"},
                 {"node", "node::NodeArrayBufferAllocator::AllocateUninitialized(unsigned long)"},
                 {"node", "v8::ArrayBuffer::NewBackingStoreForNodeLTS(v8::Isolate*, unsigned long)"},
                 {"node", "v8::internal::FunctionCallbackArguments::Call(v8::internal::CallHandlerInfo)"},
                 {"node",
                  "v8::internal::MaybeHandle<v8::internal::Object> v8::internal::(anonymous "
                  "namespace)::HandleApiCallHelper<false>(v8::internal::Isolate*, int)"},
                 {"node", "v8::internal::Builtin_HandleApiCall(int, unsigned long*, v8::internal::Isolate*)"},
                 {"node", "Builtins_CEntry_Return1_ArgvOnStack_BuiltinExit"},
                 {"", "JS:^alloc node:buffer:391:30"},
                 {"", "JS:^cacheBody /srv/buf.js:2:19"}}),
            "JS:^cacheBody /srv/buf.js:2:19 through v8::ArrayBuffer::NewBackingStoreForNodeLTS(v8::Isolate*, "
            "unsigned long)");
}

TEST(FrameRoles, RulesOfTheUserComeFirst) {
  const auto own = signatures_from_text(
      R"({"format":"whomap-signatures","version":1,"frames":[
        {"role":"allocator","function":"^pool_take$"},
        {"role":"program","module":"^libours","function":"^malloc$"},
        {"role":"hook","module":"^libshim"}]})",
      "own.json");
  ASSERT_TRUE(own.has_value()) << to_line(own.error());
  const auto roles = FrameRoles::with(own->frames);
  const auto with_own = [&](const std::string& module, const std::string& function) {
    return role_of(make_stack(1, {{module, function}}).frames[0], *roles);
  };
  EXPECT_EQ(with_own("app", "pool_take"), FrameRole::allocator);
  EXPECT_EQ(with_own("libours.so", "malloc"), FrameRole::program);
  EXPECT_EQ(with_own("libshim.so", ""), FrameRole::hook);
  EXPECT_EQ(with_own("app", "zmalloc"), FrameRole::allocator);
  EXPECT_EQ(role("app", "pool_take"), FrameRole::program);
}

TEST(FrameRoles, RulesThatCannotBeAreRefused) {
  const auto says = [](const std::string& rule, const std::string& part) {
    const auto read = signatures_from_text(
        R"({"format":"whomap-signatures","version":1,"frames":[)" + rule + "]}", "own.json");
    ASSERT_FALSE(read.has_value()) << rule;
    EXPECT_EQ(read.error().code, ErrorCode::input_damaged);
    EXPECT_NE(to_line(read.error()).find(part), std::string::npos) << to_line(read.error());
  };
  says(R"({"role":"allocator"})", "frames[0].function");
  says(R"({"role":"boss","function":"f"})", "frames[0].role");
  says(R"({"function":"f"})", "frames[0].role");
  says(R"({"role":"hook","module":"("})", "frames[0].module is not an expression");
  says(R"({"role":"allocator","function":"f","runtime":"cobol"})", "frames[0].runtime");
  says("7", "frames[0]");
}

}  // namespace
}  // namespace whomap
