// SPDX-License-Identifier: Apache-2.0
#include "core/plan/value.h"

#include <algorithm>

namespace whomap {
namespace {

/// The low `width` bytes, extended to 64 bits.
std::int64_t extended(std::int64_t number, std::uint8_t width, bool sign_extended) {
  if (width >= 8) return number;
  const unsigned dropped = 64U - 8U * width;
  const auto shifted = static_cast<std::uint64_t>(number) << dropped;
  return sign_extended ? static_cast<std::int64_t>(shifted) >> dropped
                       : static_cast<std::int64_t>(shifted >> dropped);
}

std::uint64_t common_proof(std::uint64_t a, std::uint64_t b) {
  return a == b ? a : 0;
}

}  // namespace

void Value::normalise() {
  const auto begin = constants_.begin();
  std::sort(begin, begin + count_);
  count_ = static_cast<std::uint8_t>(std::unique(begin, begin + count_) - begin);
  std::fill(begin + count_, constants_.end(), 0);
}

Value Value::merged(const Value& other) const {
  if (kind_ == Kind::none) return other;
  if (other.kind_ == Kind::none) return *this;
  const std::uint64_t proof = common_proof(proof_, other.proof_);
  if (kind_ != other.kind_) return unknown(0);
  Value result = *this;
  result.proof_ = proof;
  switch (kind_) {
    case Kind::constants: {
      // The same number set at two places is proven by either: the lower address stands for both.
      if (constants_ == other.constants_ && count_ == other.count_) {
        result.proof_ = std::min(proof_, other.proof_);
        return result;
      }
      std::array<std::int64_t, 2 * most_constants> both{};
      auto end = std::set_union(constants_.begin(), constants_.begin() + count_, other.constants_.begin(),
                                other.constants_.begin() + other.count_, both.begin());
      const auto count = static_cast<std::size_t>(end - both.begin());
      if (count > most_constants) return unknown(0);
      std::copy(both.begin(), end, result.constants_.begin());
      result.count_ = static_cast<std::uint8_t>(count);
      return result;
    }
    case Kind::entry_register:
      if (register_ != other.register_) return unknown(0);
      result.low_half_ = low_half_ || other.low_half_;
      return result;
    case Kind::entry_stack:
    case Kind::stack_address:
      if (offset_ != other.offset_) return unknown(0);
      result.low_half_ = low_half_ || other.low_half_;
      return result;
    case Kind::none:
    case Kind::unknown: return result;
  }
  return result;
}

Value Value::moved(std::uint64_t address, std::uint8_t width, bool sign_extended) const {
  Value result = *this;
  switch (kind_) {
    case Kind::constants:
      // The proof stays with the instruction that holds the immediate.
      for (std::size_t i = 0; i < count_; ++i)
        result.constants_[i] = extended(constants_[i], width, sign_extended);
      result.normalise();
      return result;
    case Kind::entry_register:
    case Kind::entry_stack:
      if (width < 4) return unknown(address);
      result.low_half_ = low_half_ || width == 4;
      result.proof_ = address;
      return result;
    case Kind::stack_address: return width == 8 ? result : unknown(address);
    case Kind::unknown: result.proof_ = address; return result;
    case Kind::none: return result;
  }
  return result;
}

Value Value::changed(Effect change, std::int64_t immediate, std::uint64_t address, std::uint8_t width) const {
  Value result = *this;
  if (kind_ == Kind::none) return result;
  if (kind_ == Kind::stack_address && change == Effect::add && width == 8) {
    result.offset_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(offset_) +
                                               static_cast<std::uint64_t>(immediate));
    return result;
  }
  // or $-1 and and $0 give a constant whatever was there before.
  if (change == Effect::bit_or && immediate == -1) return constant(extended(-1, width, false), address);
  if (change == Effect::bit_and && immediate == 0) return constant(0, address);
  if (kind_ != Kind::constants)
    return change == Effect::add && immediate == 0 ? moved(address, width, false) : unknown(address);
  for (std::size_t i = 0; i < count_; ++i) {
    const auto old = static_cast<std::uint64_t>(constants_[i]);
    const auto operand = static_cast<std::uint64_t>(immediate);
    const std::uint64_t now = change == Effect::add      ? old + operand
                              : change == Effect::bit_or ? old | operand
                                                         : old & operand;
    result.constants_[i] = extended(static_cast<std::int64_t>(now), width, false);
  }
  result.proof_ = address;
  result.normalise();
  return result;
}

Value Value::inserted(std::int64_t bits, std::uint8_t shift, std::uint64_t address,
                      std::uint8_t width) const {
  if (kind_ == Kind::none) return *this;
  if (kind_ != Kind::constants) return unknown(address);
  Value result = *this;
  const std::uint64_t mask = ((width >= 8 ? 0 : std::uint64_t{1} << (8U * width)) - 1) << shift;
  for (std::size_t i = 0; i < count_; ++i) {
    const std::uint64_t kept = static_cast<std::uint64_t>(constants_[i]) & ~mask;
    result.constants_[i] =
        static_cast<std::int64_t>(kept | ((static_cast<std::uint64_t>(bits) << shift) & mask));
  }
  result.proof_ = address;
  result.normalise();
  return result;
}

}  // namespace whomap
