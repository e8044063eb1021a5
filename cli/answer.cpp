// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "core/report/report.h"

namespace whomap::cli {
namespace {

std::string_view name_of(AnswerShape shape) {
  switch (shape) {
    case AnswerShape::text: return "text";
    case AnswerShape::json: return "json";
    case AnswerShape::folded: return "folded";
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

int terminal_width(int fd) {
  constexpr int narrowest = 40;
  winsize size{};
  if (::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
    return std::max<int>(size.ws_col, narrowest);
  return 80;
}

Result<void> write_answer(const Answer& answer, AnswerShape shape, const std::string& path,
                          const CommonOptions& common) {
  const bool to_stdout = path == "-";
  std::string text;
  switch (shape) {
    case AnswerShape::json: text = to_json_text(answer); break;
    case AnswerShape::folded: text = to_folded(answer); break;
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
