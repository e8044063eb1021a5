// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/expression.h"

#include <dwarf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace whomap {
namespace {

Dwarf_Op op(unsigned atom, std::uint64_t number = 0, std::uint64_t number2 = 0, std::uint64_t offset = 0) {
  return {static_cast<std::uint8_t>(atom), number, number2, offset};
}

class Expression : public ::testing::Test {
 protected:
  Expression() {
    stack_.address = 0x1000;
    stack_.bytes.resize(64);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::uint64_t word = 0x1000 + 8 * i + 0x100000000 * i;
      std::memcpy(stack_.bytes.data() + 8 * i, &word, sizeof word);
    }
    registers_.set(dwarf_register::rsp, 0x1000);
    registers_.set(dwarf_register::rbp, 0x1020);
  }
  ExpressionValue run(const std::vector<Dwarf_Op>& operations, std::optional<std::uint64_t> cfa = {}) {
    const StackReader stack(stack_);
    return evaluate(operations, {registers_, stack, cfa});
  }
  std::uint64_t value(const std::vector<Dwarf_Op>& operations, std::optional<std::uint64_t> cfa = {}) {
    const ExpressionValue result = run(operations, cfa);
    EXPECT_EQ(result.failure, ExpressionFailure::none);
    return result.value;
  }

  StackCopy stack_;
  RegisterFile registers_;
};

TEST_F(Expression, RegistersOffsetsAndDereference) {
  EXPECT_EQ(value({op(DW_OP_breg7, 8)}), 0x1008U);
  EXPECT_EQ(value({op(DW_OP_bregx, 6, static_cast<std::uint64_t>(-8))}), 0x1018U);
  EXPECT_EQ(value({op(DW_OP_breg6, static_cast<std::uint64_t>(-8)), op(DW_OP_deref)}), 0x300001018U);
  EXPECT_EQ(value({op(DW_OP_breg6, 0), op(DW_OP_deref_size, 2)}), 0x1020U);
  EXPECT_EQ(value({op(DW_OP_call_frame_cfa), op(DW_OP_plus_uconst, 3)}, 0x2000), 0x2003U);
}

TEST_F(Expression, ProcedureLinkageTableRow) {
  // CFA of lazy PLT entries: rsp + 8 + (rip & 15 >= 11 ? 8 : 0), as ld writes it.
  const std::vector<Dwarf_Op> plt{op(DW_OP_breg7, 8), op(DW_OP_breg16, 0), op(DW_OP_lit15),
                                  op(DW_OP_and),      op(DW_OP_lit11),     op(DW_OP_ge),
                                  op(DW_OP_lit3),     op(DW_OP_shl),       op(DW_OP_plus)};
  registers_.set(dwarf_register::rip, 0x40100A);
  EXPECT_EQ(value(plt), 0x1008U);
  registers_.set(dwarf_register::rip, 0x40100B);
  EXPECT_EQ(value(plt), 0x1010U);
}

TEST_F(Expression, Arithmetic) {
  const auto two = [&](std::uint64_t left, std::uint64_t right, unsigned atom) {
    return value({op(DW_OP_const8u, left), op(DW_OP_const8u, right), op(atom)});
  };
  const auto minus = [](std::uint64_t number) { return 0 - number; };
  EXPECT_EQ(two(7, 5, DW_OP_minus), 2U);
  EXPECT_EQ(two(7, 5, DW_OP_mul), 35U);
  EXPECT_EQ(two(minus(7), 2, DW_OP_div), minus(3));
  EXPECT_EQ(two(std::uint64_t{1} << 63, minus(1), DW_OP_div), std::uint64_t{1} << 63);
  EXPECT_EQ(two(7, 5, DW_OP_mod), 2U);
  EXPECT_EQ(two(6, 3, DW_OP_xor), 5U);
  EXPECT_EQ(two(1, 70, DW_OP_shl), 0U);
  EXPECT_EQ(two(minus(8), 1, DW_OP_shra), minus(4));
  EXPECT_EQ(two(minus(8), 200, DW_OP_shra), minus(1));
  EXPECT_EQ(two(minus(1), 1, DW_OP_lt), 1U) << "comparisons are signed";
  EXPECT_EQ(value({op(DW_OP_const1s, minus(5)), op(DW_OP_abs)}), 5U);
}

TEST_F(Expression, StackOperations) {
  const std::vector<Dwarf_Op> three{op(DW_OP_lit1), op(DW_OP_lit2), op(DW_OP_lit3)};
  const auto with = [&](Dwarf_Op last) {
    std::vector<Dwarf_Op> all = three;
    all.push_back(last);
    return value(all);
  };
  EXPECT_EQ(with(op(DW_OP_over)), 2U);
  EXPECT_EQ(with(op(DW_OP_pick, 2)), 1U);
  EXPECT_EQ(with(op(DW_OP_drop)), 2U);
  EXPECT_EQ(with(op(DW_OP_swap)), 2U);
  EXPECT_EQ(with(op(DW_OP_rot)), 2U);
}

TEST_F(Expression, Branches) {
  // Offsets as libdw gives them: where the operation begins in the block.
  const std::vector<Dwarf_Op> either{op(DW_OP_breg7, 0, 0, 0), op(DW_OP_bra, 4, 0, 2),
                                     op(DW_OP_lit5, 0, 0, 5),  op(DW_OP_skip, 1, 0, 6),
                                     op(DW_OP_lit6, 0, 0, 9),  op(DW_OP_nop, 0, 0, 10)};
  EXPECT_EQ(value(either), 6U);
  registers_.set(dwarf_register::rsp, 0);
  EXPECT_EQ(value(either), 5U);
}

TEST_F(Expression, ValuesAndLocations) {
  EXPECT_TRUE(run({op(DW_OP_lit1)}).is_location);
  EXPECT_FALSE(run({op(DW_OP_lit1), op(DW_OP_stack_value)}).is_location);
  EXPECT_FALSE(run({op(DW_OP_reg6)}).is_location);
  EXPECT_EQ(value({op(DW_OP_regx, 6)}), 0x1020U);
}

TEST_F(Expression, FailuresAreNamed) {
  const auto failure = [&](const std::vector<Dwarf_Op>& operations) { return run(operations).failure; };
  EXPECT_EQ(failure({}), ExpressionFailure::malformed);
  EXPECT_EQ(failure({op(DW_OP_plus)}), ExpressionFailure::malformed);
  EXPECT_EQ(failure({op(DW_OP_lit1), op(DW_OP_lit0), op(DW_OP_div)}), ExpressionFailure::malformed);
  EXPECT_EQ(failure({op(DW_OP_lit1), op(DW_OP_deref_size, 9)}), ExpressionFailure::malformed);
  EXPECT_EQ(failure({op(DW_OP_call_frame_cfa)}), ExpressionFailure::malformed) << "the CFA of itself";
  EXPECT_EQ(failure({op(DW_OP_breg0, 0)}), ExpressionFailure::unknown_register);
  EXPECT_EQ(failure({op(DW_OP_bregx, 1ULL << 40, 0)}), ExpressionFailure::unknown_register);
  EXPECT_EQ(failure({op(DW_OP_push_object_address)}), ExpressionFailure::unsupported);
  EXPECT_EQ(failure({op(DW_OP_addr, 0x1000)}), ExpressionFailure::unsupported);
  EXPECT_EQ(failure({op(DW_OP_skip, static_cast<std::uint64_t>(-3), 0, 0)}), ExpressionFailure::malformed)
      << "a loop must end";
  EXPECT_EQ(failure(std::vector<Dwarf_Op>(100, op(DW_OP_lit0))), ExpressionFailure::malformed)
      << "stack overflow";
  const ExpressionValue below = run({op(DW_OP_breg7, static_cast<std::uint64_t>(-8)), op(DW_OP_deref)});
  EXPECT_EQ(below.failure, ExpressionFailure::unreadable);
  EXPECT_EQ(below.address, 0xFF8U);
  EXPECT_EQ(failure({op(DW_OP_breg7, 60), op(DW_OP_deref)}), ExpressionFailure::unreadable) << "half outside";
}

}  // namespace
}  // namespace whomap
