// SPDX-License-Identifier: Apache-2.0
// Known causes: the cases D10 and D01 with the signatures that whomap brings, and files that are refused.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "core/match/signature_file.h"
#include "tests/unit/match_fixture.h"

namespace whomap {
namespace {

const SignatureFile& shipped_file() {
  static const SignatureFile file = [] {
    auto read = load_signatures(SIGNATURES_FILE);
    EXPECT_TRUE(read.has_value()) << to_line(read.error());
    return read.value_or(SignatureFile{});
  }();
  return file;
}

const std::vector<Signature>& shipped() {
  return shipped_file().stacks;
}

std::vector<std::string> ids(const std::vector<Advice>& advice) {
  std::vector<std::string> result;
  for (const Advice& each : advice) result.push_back(each.signature);
  std::sort(result.begin(), result.end());
  return result;
}

using Ids = std::vector<std::string>;

TEST(Signatures, NoRemedyWithoutItsHazard) {
  ASSERT_GT(shipped().size(), 25U);
  const auto check = [](const KnownCause& known) {
    EXPECT_EQ(known.remedy.empty(), known.hazard.empty()) << known.id;
    EXPECT_FALSE(known.source.empty()) << known.id;
    EXPECT_FALSE(known.cause.empty()) << known.id;
  };
  for (const Signature& signature : shipped()) check(signature);
  for (const RegionSignature& signature : shipped_file().regions) check(signature);
  for (const ProcessSignature& signature : shipped_file().processes) check(signature);
}

// D10: one library, four stacks, four answers.
TEST(Signatures, TheArenaIsNamedOnlyWhereItsFrameIs) {
  const Stack arena =
      make_stack(1, {{"libc.so.6", "mmap64"},
                     {"libonnxruntime.so.1.17.0", "onnxruntime::BFCArena::Extend(unsigned long)"},
                     {"libonnxruntime.so.1.17.0", "onnxruntime::BFCArena::AllocateRawInternal"},
                     {"libonnxruntime.so.1.17.0", "onnxruntime::InferenceSession::Run(Foo const&)"},
                     {"app", "main"}});
  const auto known = known_causes(shipped(), arena, "leak");
  ASSERT_EQ(ids(known), Ids{"S06"});
  EXPECT_NE(known[0].cause.find("plateau is expected"), std::string::npos);
  EXPECT_NE(known[0].remedy.find("enable_cpu_mem_arena=False"), std::string::npos);
  EXPECT_FALSE(known[0].hazard.empty());

  const Stack without =
      make_stack(1, {{"libc.so.6", "mmap64"},
                     {"libonnxruntime.so.1.25.0", "onnxruntime::utils::ExecuteGraph"},
                     {"libonnxruntime.so.1.25.0", "onnxruntime::InferenceSession::Run(Foo const&)"},
                     {"app", "main"}});
  const auto other = known_causes(shipped(), without, "leak");
  ASSERT_EQ(ids(other), Ids{"S07"});
  EXPECT_EQ(other[0].certainty, "C");
  EXPECT_NE(other[0].cause.find("The version is 1.25.0"), std::string::npos) << other[0].cause;
  EXPECT_EQ(other[0].remedy.find("arena"), std::string::npos);

  Stack older = without;
  for (Frame& frame : older.frames)
    if (frame.module.find("onnx") != std::string::npos) frame.module = "/opt/libonnxruntime.so.1.23.2";
  EXPECT_EQ(ids(known_causes(shipped(), older, "leak")), Ids{}) << "the report is of other versions";
  for (Frame& frame : older.frames)
    if (frame.module.find("onnx") != std::string::npos) frame.module = "/opt/libonnxruntime.so";
  const auto unknown = known_causes(shipped(), older, "leak");
  ASSERT_EQ(ids(unknown), Ids{"S07"});
  EXPECT_NE(unknown[0].cause.find("The version is unknown; this is about versions 1.24.1 to 1.26.0"),
            std::string::npos);
}

TEST(Signatures, PrimitivesOfOneDnn) {
  const Stack stack = make_stack(
      1,
      {{"libc.so.6", "mmap64"},
       {"libdnnl.so.3", "dnnl::impl::cpu::x64::jit_generator::create_kernel()"},
       {"libdnnl.so.3", "dnnl::impl::primitive_t::create_primitive_common<dnnl::impl::cpu::x64::foo>(int)"},
       {"libtorch_cpu.so", "at::native::mkldnn_convolution(at::Tensor const&)"},
       {"app", "main"}});
  const auto known = known_causes(shipped(), stack, "leak");
  ASSERT_EQ(ids(known), Ids{"S08"});
  EXPECT_NE(known[0].remedy.find("ONEDNN_PRIMITIVE_CACHE_CAPACITY"), std::string::npos);
}

TEST(Signatures, WithoutNamesItCannotBeTold) {
  const Stack stripped = make_stack(1, {{"libc.so.6", "mmap64"},
                                        {"libonnxruntime.so.1.17.0", ""},
                                        {"libonnxruntime.so.1.17.0", ""},
                                        {"libonnxruntime.so.1.17.0", ""},
                                        {"app", "main"}});
  const auto known = known_causes(shipped(), stripped, "leak");
  ASSERT_EQ(ids(known), Ids{"S06m"});
  EXPECT_TRUE(known[0].cause.starts_with("Cannot tell: frames of libonnxruntime.so.1.17.0 have no names"))
      << known[0].cause;
  EXPECT_TRUE(known[0].remedy.empty()) << "never advice without the deciding frame";
  EXPECT_EQ(known[0].certainty, "C") << "one step below B";
}

// D01, and the chain as UCX 1.13 has it, with its nameless statics.
TEST(Signatures, UcxBelowMunmapAndNotOnTheWayToMmap) {
  const Stack below = make_stack(1, {{"libc.so.6", "syscall"},
                                     {"libucm-e091ff91.so.0.0.0", "ucm_orig_mmap_syscall"},
                                     {"libucs-311e600f.so.0.0.0", ""},
                                     {"libucs-311e600f.so.0.0.0", "ucs_mpool_grow"},
                                     {"libucs-311e600f.so.0.0.0", "ucs_mpool_get_grow"},
                                     {"libucs-311e600f.so.0.0.0", ""},
                                     {"libucm-e091ff91.so.0.0.0", "ucm_event_dispatch"},
                                     {"libucm-e091ff91.so.0.0.0", "ucm_munmap"},
                                     {"python3.12", "_PyMem_ArenaFree"}});
  const auto known = known_causes(shipped(), below, "leak");
  ASSERT_EQ(ids(known), (Ids{"S01", "S02", "S03"}))
      << "the version is unknown: all remedies, each with its hazard";
  for (const Advice& advice : known) EXPECT_FALSE(advice.hazard.empty());
  EXPECT_EQ(known[0].signature, "S01") << "the surest first";
  EXPECT_NE(known[0].remedy.find("UCX_RCACHE_MAX_UNRELEASED"), std::string::npos);
  EXPECT_NE(known[0].remedy.find("not a number of regions"), std::string::npos);
  EXPECT_NE(known[0].cause.find("The version is unknown"), std::string::npos);
  const auto hooks =
      std::find_if(known.begin(), known.end(), [](const Advice& each) { return each.signature == "S02"; });
  EXPECT_NE(hooks->remedy.find("UCX_MEM_MMAP_HOOK_MODE=none"), std::string::npos);
  EXPECT_NE(hooks->hazard.find("SIGSEGV"), std::string::npos);

  const Stack through = make_stack(2, {{"libc.so.6", "syscall"},
                                       {"libucm-e091ff91.so.0.0.0", "ucm_orig_mmap_syscall"},
                                       {"libucm-e091ff91.so.0.0.0", ""},
                                       {"libucm-e091ff91.so.0.0.0", "ucm_event_dispatch"},
                                       {"libucm-e091ff91.so.0.0.0", "ucm_mmap"},
                                       {"python3.12", "_PyMem_ArenaAlloc"},
                                       {"python3.12", "new_arena"},
                                       {"python3.12", "_PyObject_Malloc"}});
  EXPECT_EQ(ids(known_causes(shipped(), through, "pass-through")), Ids{"S11"});

  Stack fixed = below;
  for (Frame& frame : fixed.frames)
    if (frame.module.find("libuc") != std::string::npos)
      frame.module = "/opt/ucx-1.21.0/lib/" + frame.module.substr(frame.module.rfind('/') + 1);
  EXPECT_EQ(ids(known_causes(shipped(), fixed, "leak")), Ids{"S03"}) << "1.21 has the fix";
}

TEST(Signatures, FilesThatAreRefused) {
  const auto says = [](const std::string& signature, std::string_view part) {
    const auto read = signatures_from_text(
        R"({"format":"whomap-signatures","version":1,"signatures":[)" + signature + "]}", "own.json");
    ASSERT_FALSE(read.has_value()) << signature;
    EXPECT_EQ(read.error().code, ErrorCode::input_damaged);
    EXPECT_NE(to_line(read.error()).find(part), std::string::npos) << to_line(read.error());
  };
  const std::string rest = R"("cause":"c","source":"s","certainty":"A")";
  says(R"({"id":"X","frames":[{"function":"f"}],"remedy":"r",)" + rest + "}", "a remedy needs its hazard");
  says(R"({"id":"X","frames":[{"function":"("}],)" + rest + "}", "X.function is not an expression");
  says(R"({"id":"X","frames":[],)" + rest + "}", "X.frames");
  says(R"({"id":"X","frames":[{}],)" + rest + "}", "X.frames");
  says(R"({"id":"X","frames":[{"function":"f"}],"cause":"c","source":"s","certainty":"D"})", "X.certainty");
  says(R"({"id":"X","frames":[{"function":"f"}],"version":{"of":"v[0-9]"},)" + rest + "}", "version.of");
  says(R"({"frames":[{"function":"f"}],)" + rest + "}", "signatures[0].id is missing");
  says("7", "signatures[0] is not an object");
  EXPECT_EQ(signatures_from_text("{}", "own.json").error().code, ErrorCode::input_kind);
  EXPECT_EQ(signatures_from_text(R"({"format":"whomap-signatures","version":2})", "x").error().code,
            ErrorCode::input_kind);
}

TEST(Signatures, OwnOnesAreAddedAndReplaceThoseOfTheSameId) {
  auto own = signatures_from_text(
      R"({"format":"whomap-signatures","version":1,"signatures":[
        {"id":"S01","frames":[{"function":"^mine$"}],"cause":"mine","source":"me","certainty":"C"},
        {"id":"OURS","frames":[{"module":"^app$","function":"^main$"}],"cause":"ours","remedy":"restart","hazard":"loses work","source":"us","certainty":"B"}]})",
      "own.json");
  ASSERT_TRUE(own.has_value()) << to_line(own.error());
  SignatureFile all = shipped_file();
  const std::size_t before = all.stacks.size();
  add_signatures(all, std::move(*own));
  EXPECT_EQ(all.stacks.size(), before + 1);
  EXPECT_EQ(ids(known_causes(all.stacks, make_stack(1, {{"app", "mine"}, {"app", "main"}}), "leak")),
            (Ids{"OURS", "S01"}));
}

TEST(Signatures, RegionsByTheirNamesAndFlags) {
  const auto known = [](const std::string& line, std::string_view kind, const std::string& smaps = "") {
    const Snapshot snapshot = snapshot_from_text(line + "\n" + smaps);
    EXPECT_EQ(snapshot.regions.size(), 1U) << line;
    return ids(known_region_causes(shipped_file().regions, snapshot.regions.at(0), kind));
  };
  const std::string anonymous = "7f0000000000-7f0000800000 rw-p 00000000 00:00 0 ";
  EXPECT_EQ(known(anonymous, "anonymous"), Ids{});
  EXPECT_EQ(known(anonymous + "[anon: glibc: malloc arena]", "glibc-arena"), Ids{"R01"});
  EXPECT_EQ(known(anonymous + "[anon: glibc: malloc]", "named"), Ids{"R02"});
  EXPECT_EQ(known(anonymous + "[anon: glibc: pthread stack: 123]", "thread-stack"), Ids{"R03"});
  EXPECT_EQ(known(anonymous + "[anon: glibc: loader malloc]", "named"), Ids{"R04"});
  EXPECT_EQ(known(anonymous + "[anon: Go: heap]", "named"), Ids{"R05"});
  EXPECT_EQ(known(anonymous + "[anon:Ruby:rb_yjit_reserve_addr_space]", "named"), Ids{"R06"});
  EXPECT_EQ(known(anonymous + "[anon:linker_alloc]", "named"), Ids{"R08"});
  EXPECT_EQ(known(anonymous + "[anon:somebody]", "named"), Ids{});
  EXPECT_EQ(known(anonymous, "glibc-arena"), Ids{"R09"});
  EXPECT_EQ(known("7f0000000000-7f0000800000 rw-s 00000000 00:01 5 /memfd:doublemapper (deleted)", "memfd"),
            (Ids{"R11", "R12"}));
  EXPECT_EQ(known("7f0000000000-7f0000800000 r--s 00000000 fe:00 5 /var/lib/x.mdb", "file"), Ids{"R14"});
  EXPECT_EQ(known("7f0000000000-7f0000800000 rw-s 00000000 00:05 5 /dev/nvidia0", "device"), Ids{"R13"});
  EXPECT_EQ(known(anonymous, "anonymous", "VmFlags: rd wr nr gd \n"), (Ids{"R15", "R16"}));
  EXPECT_EQ(known(anonymous, "anonymous", "Rss: 800 kB\nLazyFree: 300 kB\n"), Ids{});
  EXPECT_EQ(known(anonymous, "anonymous", "Rss: 800 kB\nLazyFree: 500 kB\n"), Ids{"R17"});
  EXPECT_EQ(known(anonymous, "thread-stack", "Rss: 8192 kB\nAnonHugePages: 6144 kB\n"), (Ids{"R10", "S27"}));
}

// S19: a stack that the program mapped for its thread, by where its growth lies.
TEST(Signatures, StacksThatTheProgramMapsItself) {
  const Stack own = make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "make_worker"}, {"app", "main"}});
  const std::vector<std::string> in_stack{"thread-stack"}, elsewhere{"anonymous"};
  EXPECT_EQ(ids(known_causes(shipped(), own, "leak", in_stack)), Ids{"S19"});
  EXPECT_EQ(ids(known_causes(shipped(), own, "leak", elsewhere)), Ids{});
  EXPECT_EQ(ids(known_causes(shipped(), own, "leak")), Ids{});
  const Stack libc = make_stack(1, {{"libc.so.6", "mmap64"},
                                    {"libc.so.6", "allocate_stack"},
                                    {"libc.so.6", "pthread_create@@GLIBC_2.34"},
                                    {"app", "make_worker"}});
  EXPECT_EQ(ids(known_causes(shipped(), libc, "thread-stacks", in_stack)), Ids{"S17"});
}

TEST(Signatures, GrowthWithoutAStackByWhatIsMapped) {
  const Snapshot cuda = snapshot_from_text(
      "7f0000000000-7f0000800000 r-xp 00000000 fe:00 5 /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n");
  const Snapshot other =
      snapshot_from_text("7f0000000000-7f0000800000 r-xp 00000000 fe:00 5 /opt/libcuda.so.d/libfoo.so\n");
  const auto& processes = shipped_file().processes;
  EXPECT_EQ(ids(known_process_causes(processes, cuda, "no-site")), Ids{"S28"});
  EXPECT_EQ(ids(known_process_causes(processes, cuda, "leak")), Ids{});
  EXPECT_EQ(ids(known_process_causes(processes, other, "no-site")), Ids{});
  EXPECT_EQ(ids(known_causes(shipped(), make_stack(1, {{"libcuda.so.1", "cuGraphInstantiate_v2"}}), "leak")),
            Ids{"S28"});
  EXPECT_EQ(ids(known_causes(shipped(),
                             make_stack(1, {{"libjvm.so", "Unsafe_AllocateMemory0"},
                                            {"", "Lsun/nio/ch/Util;::getTemporaryDirectBuffer"}}),
                             "malloc")),
            Ids{"S26"});
}

TEST(Signatures, TheLastVersionIncludesItsOwnReleases) {
  Stack stack = make_stack(1, {{"libucs.so.0", "ucs_mpool_grow"}, {"libucm.so.0", "ucm_munmap"}});
  for (const auto& [version, applies] :
       {std::pair{"1.20.0", true}, std::pair{"1.20", true}, std::pair{"1.2", true}, std::pair{"1.21", false},
        std::pair{"1.200", false}}) {
    for (Frame& frame : stack.frames)
      frame.module = fmt::format("/opt/ucx-{}/{}", version, frame.module.substr(frame.module.rfind('/') + 1));
    const Ids found = ids(known_causes(shipped(), stack, "leak"));
    EXPECT_EQ(std::find(found.begin(), found.end(), "S01") != found.end(), applies) << version;
  }
}

TEST(Signatures, VersionsAreComparedNumberByNumber) {
  EXPECT_TRUE(version_less("1.9.2", "1.10"));
  EXPECT_FALSE(version_less("1.10", "1.9.2"));
  EXPECT_FALSE(version_less("1.10", "1.10.0"));
  EXPECT_TRUE(version_less("1.10", "1.10.1"));
  EXPECT_TRUE(version_less("", "0.1"));
}

}  // namespace
}  // namespace whomap
