// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/names.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/core/text.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

// The text that NameText may have said as `text`.
std::string Unescaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    uint8_t byte = 0;
    const char* const digits = text.data() + 2;
    if (text.size() >= 4 && text.starts_with("\\x") &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      result += static_cast<char>(byte);
      text.remove_prefix(4);
    } else {
      result += text[0];
      text.remove_prefix(1);
    }
  }
  return result;
}

struct Reading {
  std::string ns, name;
  bool operator==(const Reading&) const = default;
};

// All that a word may mean, what it says literally first.
std::vector<Reading> ReadingsOf(const std::string& word, const std::optional<std::string>& ns) {
  std::vector<Reading> readings;
  const auto add = [&](const std::string& of_ns, const std::string& name) {
    for (Reading reading : {Reading{of_ns, name}, Reading{Unescaped(of_ns), Unescaped(name)}}) {
      if (std::find(readings.begin(), readings.end(), reading) == readings.end()) {
        readings.push_back(std::move(reading));
      }
    }
  };
  add(ns.value_or(""), word);
  if (ns.has_value()) return readings;
  for (size_t slash = word.find('/'); slash != std::string::npos;
       slash = word.find('/', slash + 1)) {
    if (slash != 0 && slash + 1 != word.size()) add(word.substr(0, slash), word.substr(slash + 1));
  }
  return readings;
}

Result<Branch> FindById(const Store& store, const std::string& word) {
  uint64_t id = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data() + 1, end, id);
  if (error != std::errc() || stop != end) {
    return Status(StatusCode::kInvalidArgument,
                  "branch " + Quoted(Excerpt(word)) + ": a number must follow the #");
  }
  return store.GetBranch(BranchId{id});
}

Status Ambiguous(const std::string& word, const Reading& one, BranchId id, const Reading& other,
                 BranchId other_id) {
  const auto text = [](const Reading& reading, BranchId of) {
    return IdText(of) + " (" + Quoted(reading.name) +
           (reading.ns.empty() ? "" : " in namespace " + Quoted(reading.ns)) + ")";
  };
  return Status(StatusCode::kInvalidArgument, Quoted(word) + " may be " + text(one, id) + " or " +
                                                  text(other, other_id) +
                                                  ": say the id, or the namespace by --ns");
}

}  // namespace

std::string NameText(std::string_view name) {
  std::string text = Escaped(name);
  if (text.starts_with('#')) text.replace(0, 1, "\\x23");
  return text;
}

std::string IdText(BranchId id) { return "#" + std::to_string(static_cast<uint64_t>(id)); }

std::string NameLabel(std::string_view ns, std::string_view name) {
  return ns.empty() ? NameText(name) : NameText(ns) + "/" + NameText(name);
}

std::string BranchLabel(const BranchInfo& info) {
  return info.name.empty() ? IdText(info.id) : NameLabel(info.ns, info.name);
}

std::string LabelWithId(const BranchInfo& info) {
  return info.name.empty() ? IdText(info.id) : BranchLabel(info) + " (" + IdText(info.id) + ")";
}

Status CheckNewName(const std::string& name) {
  if (!name.starts_with('#')) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                Quoted(Excerpt(name)) + " cannot be a name: # and a number stand for the branch " +
                    "of that id");
}

Result<Branch> FindBranch(const Store& store, const std::string& word,
                          const std::optional<std::string>& ns) {
  if (word.starts_with('#')) return FindById(store, word);
  const std::vector<Reading> readings = ReadingsOf(word, ns);
  Result<Branch> found = Status(StatusCode::kNotFound, "");
  const Reading* found_by = nullptr;
  for (const Reading& reading : readings) {
    Result<Branch> branch = store.FindBranch(reading.name, reading.ns);
    if (!branch.ok()) {
      if (branch.status().code() != StatusCode::kNotFound) return branch;
      if (&reading == &readings.front()) found = std::move(branch);
    } else if (found_by == nullptr) {
      found = std::move(branch);
      found_by = &reading;
    } else {
      return Ambiguous(word, *found_by, found->id(), reading, branch->id());
    }
  }
  const bool number = !word.empty() && std::all_of(word.begin(), word.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (found_by != nullptr || !number) return found;
  return Status(StatusCode::kNotFound,
                std::string(found.status().message()) + "; " + std::string(kQuoteIds));
}

Result<std::string> FindNamespace(const Store& store, const std::string& word) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<NamespaceInfo> all, store.Namespaces());
  for (const std::string& name : {word, Unescaped(word)}) {
    if (std::any_of(all.begin(), all.end(),
                    [&](const NamespaceInfo& one) { return one.name == name; })) {
      return name;
    }
  }
  return word;
}

}  // namespace cairn::cli
