// SPDX-License-Identifier: Apache-2.0
#include "core/report/cause_text.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace whomap {

std::string CauseText::text(const Advice& advice, const std::string& where) {
  const auto [told, fresh] = told_.try_emplace({advice.signature, advice.cause}, where);
  return fresh ? whole(advice, "") : part(advice.signature, "as at " + told->second);
}

std::string CauseText::text_once(const Advice& advice, const std::string& about) {
  const bool fresh = told_.try_emplace({advice.signature, advice.cause}, about).second;
  return fresh ? whole(advice, about + ": ") : std::string();
}

/// A remedy never stands without its hazard: the file of signatures has both or neither.
std::string CauseText::whole(const Advice& advice, const std::string& about) const {
  const std::string sure = advice.certainty == "A"   ? "documented"
                           : advice.certainty == "B" ? "measured by who reported it"
                                                     : "UNCONFIRMED";
  return "\n" + part(advice.signature, fmt::format("{}{} [{}]", about, advice.cause, sure)) +
         part("remedy", advice.remedy) + part("hazard", advice.hazard) + part("source", advice.source);
}

std::string CauseText::part(const std::string& name, const std::string& text) const {
  return text.empty() ? std::string()
                      : "   " + paint_.dim(fit(name, 8)) + wrap(printable(text), width_, 11, 11);
}

}  // namespace whomap
