// SPDX-License-Identifier: Apache-2.0
// What is known of a register's content at one place in a function.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "core/plan/instruction.h"

namespace whomap {

/// A lattice: nothing yet (no path seen), then one known kind, then unknown. Values only ever go down it, so
/// that following loops ends.
class Value {
 public:
  enum class Kind : std::uint8_t {
    none,            ///< no path has reached the place
    constants,       ///< one of a few numbers
    entry_register,  ///< what a register held at the function's entry
    entry_stack,     ///< what the stack held at the function's entry, at stack pointer + offset
    stack_address,   ///< stack pointer at the entry + offset
    unknown,
  };
  static constexpr std::size_t most_constants = 4;

  static Value constant(std::int64_t number, std::uint64_t proof) {
    Value value(Kind::constants, proof);
    value.constants_[0] = number;
    value.count_ = 1;
    return value;
  }
  static Value of_register(RegisterNumber number) {
    Value value(Kind::entry_register, 0);
    value.register_ = number;
    return value;
  }
  static Value of_stack(std::int64_t offset) {
    Value value(Kind::entry_stack, 0);
    value.offset_ = offset;
    return value;
  }
  static Value stack_address(std::int64_t offset) {
    Value value(Kind::stack_address, 0);
    value.offset_ = offset;
    return value;
  }
  static Value unknown(std::uint64_t proof) { return {Kind::unknown, proof}; }
  Value() = default;

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] std::span<const std::int64_t> constants() const {
    return std::span(constants_).first(count_);
  }
  [[nodiscard]] std::optional<std::int64_t> single() const {
    return kind_ == Kind::constants && count_ == 1 ? std::optional(constants_[0]) : std::nullopt;
  }
  [[nodiscard]] RegisterNumber entry_register() const { return register_; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  /// Address of the instruction that made the value what it is; 0: none did, or different ones on different
  /// paths.
  [[nodiscard]] std::uint64_t proof() const { return proof_; }
  /// Only the low 32 bits of the entry's register or stack slot were taken.
  [[nodiscard]] bool low_half() const { return low_half_; }

  /// Both are what the same register or stack word held at the entry.
  [[nodiscard]] bool same_origin(const Value& other) const {
    return kind_ == other.kind_ && register_ == other.register_ && offset_ == other.offset_;
  }

  /// Keeps what is true on both paths.
  [[nodiscard]] Value merged(const Value& other) const;
  /// The same value after an instruction at `address` moved it, `width` bytes of it.
  [[nodiscard]] Value moved(std::uint64_t address, std::uint8_t width, bool sign_extended) const;
  /// Every constant changed by `change`; an address on the stack moves with add.
  [[nodiscard]] Value changed(Effect change, std::int64_t immediate, std::uint64_t address,
                              std::uint8_t width) const;
  /// Constants with the bits [shift, shift + 8 * width) replaced.
  [[nodiscard]] Value inserted(std::int64_t bits, std::uint8_t shift, std::uint64_t address,
                               std::uint8_t width) const;

  bool operator==(const Value&) const = default;

 private:
  Value(Kind kind, std::uint64_t proof) : kind_(kind), proof_(proof) {}
  void normalise();

  Kind kind_ = Kind::none;
  std::uint8_t count_ = 0;
  RegisterNumber register_ = no_register;
  bool low_half_ = false;
  std::array<std::int64_t, most_constants> constants_{};
  std::int64_t offset_ = 0;
  std::uint64_t proof_ = 0;
};

}  // namespace whomap
