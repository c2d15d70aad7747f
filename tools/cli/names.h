// SPDX-License-Identifier: Apache-2.0
//
// Branches and namespaces on the command line. They have one spelling, which every command prints
// and takes:
//
//   NAME      a branch in the default namespace
//   NS/NAME   a branch in another one
//   #ID       a branch by its id
//
// \xNN is a byte of a name: of one that cannot be printed, of ", \ and /, and of a leading #. With
// --ns a word is a NAME, and a slash belongs to it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cairn/store.h"

namespace cairn::cli {

// Branches, or objects, that are listed together.
inline constexpr size_t kListedAtOnce = 1000;

std::string NameText(std::string_view name);     // A name or a namespace as part of a spelling.
std::string NamespaceText(std::string_view ns);  // A namespace alone: "(default)" is "".
std::string NameLabel(std::string_view ns, std::string_view name);  // "NAME" or "NS/NAME".
std::string BranchLabel(const BranchInfo& info);                    // The same, or "#ID".
std::string IdText(BranchId id);                                    // "#17"
std::string LabelWithId(const BranchInfo& info);                    // "name (#17)", or "#17".

// How to type an id in a shell: an unquoted # begins a comment, so the rest would never reach the
// command.
inline constexpr const char* kQuoteIds = "an id is quoted in a shell, as '#17'";

// All of these: kInvalidArgument naming a word that has no meaning, or several.

// Text in which \xNN stands for a byte.
Result<std::string> Unescaped(std::string_view word);
// A NamespaceText.
Result<std::string> ReadNamespace(std::string_view word);
// The branch `word`; `ns` is a NamespaceText, if it is given. kNotFound.
Result<Branch> FindBranch(const Store& store, const std::string& word,
                          const std::optional<std::string>& ns);
// Name and namespace of a branch that FindBranch would then find by this word; `ns` is plain.
Result<BranchOptions> ReadNewBranch(const std::string& word, const std::optional<std::string>& ns);
// The same of a branch in the namespace `ns`: another one is refused.
Result<std::string> ReadNewName(const std::string& word, const std::string& ns);

// The model of that name; without a name, the only one. kNotFound; kInvalidArgument: several.
Result<ModelId> FindModel(const Store& store, const std::string& name);

}  // namespace cairn::cli
