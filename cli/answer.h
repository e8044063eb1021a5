// SPDX-License-Identifier: Apache-2.0
// Printing an answer: what trace, match and report have in common.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "cli/command.h"
#include "core/match/match.h"
#include "core/report/weight.h"

namespace whomap::cli {

/// Why `output` cannot be written: it is one of `inputs`, which are still to be read.
std::optional<Error> output_is_input(const std::string& output, std::initializer_list<std::string> inputs);

enum class AnswerShape { text, json, folded, speedscope, pprof, html };

/// The value of --format; a usage error naming the ones in `allowed`.
Result<AnswerShape> answer_shape(const std::string& format, std::initializer_list<AnswerShape> allowed);

/// The value of --weight; nullopt when it was not given.
Result<std::optional<Weight>> weight_option(const std::string& name);

/// Columns of the terminal on `fd`, never below 40; 80 where it is none.
int terminal_width(int fd);

/// Writes the answer to `path` ("-": standard output). Colour only on standard output. Without a weight the
/// shapes for viewers have growth, or live bytes where growth is not known.
Result<void> write_answer(const Answer& answer, AnswerShape shape, const std::string& path,
                          const CommonOptions& common, std::optional<Weight> weight = std::nullopt);

}  // namespace whomap::cli
