// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/report/report.h"

namespace whomap::cli {

std::optional<Error> output_is_input(const std::string& output, std::initializer_list<std::string> inputs) {
  for (const std::string& each : inputs)
    if (std::error_code unknown; std::filesystem::equivalent(each, output, unknown))
      return Error{ErrorCode::output_unwritable, fmt::format("{} is a file that is read", output),
                   "give the result another name with -o"};
  return std::nullopt;
}
namespace {

std::string_view name_of(AnswerShape shape) {
  switch (shape) {
    case AnswerShape::text: return "text";
    case AnswerShape::json: return "json";
    case AnswerShape::folded: return "folded";
    case AnswerShape::speedscope: return "speedscope";
    case AnswerShape::pprof: return "pprof";
    case AnswerShape::html: return "html";
  }
  return {};
}

}  // namespace

Result<AnswerShape> answer_shape(const std::string& format, std::initializer_list<AnswerShape> allowed) {
  std::string names;
  for (const AnswerShape shape : allowed) {
    if (name_of(shape) == format) return shape;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(shape));
  }
  return fail(ErrorCode::usage, fmt::format("--format is '{}', and must be one of {}", format, names));
}

Result<std::optional<Weight>> weight_option(const std::string& name) {
  if (name.empty()) return std::optional<Weight>();
  if (name == "growth") return std::optional(Weight::growth);
  if (name == "live") return std::optional(Weight::live);
  return fail(ErrorCode::usage, fmt::format("--weight is '{}', and must be growth or live", name));
}

int terminal_width(int fd) {
  constexpr int narrowest = 40;
  winsize size{};
  if (::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
    return std::max<int>(size.ws_col, narrowest);
  return 80;
}

Result<void> write_answer(const Answer& answer, AnswerShape shape, const std::string& path,
                          const CommonOptions& common, std::optional<Weight> asked) {
  const Weight weight = asked.value_or(answer.growth.known ? Weight::growth : Weight::live);
  const bool to_stdout = path == "-";
  std::string text;
  switch (shape) {
    case AnswerShape::json: text = to_json_text(answer); break;
    case AnswerShape::folded: text = to_folded(answer, weight); break;
    case AnswerShape::speedscope: text = to_speedscope(answer, weight); break;
    case AnswerShape::html: text = to_html(answer, weight); break;
    case AnswerShape::pprof: {
      auto profile = to_pprof(answer, weight);
      if (!profile) return tl::make_unexpected(profile.error());
      text = std::move(*profile);
      break;
    }
    case AnswerShape::text: {
      TextOptions options;
      options.color = to_stdout && common.use_color(STDOUT_FILENO);
      if (to_stdout) options.width = terminal_width(STDOUT_FILENO);
      text = to_text(answer, options);
      break;
    }
  }
  return write_result(path, common.force, text);
}

}  // namespace whomap::cli
