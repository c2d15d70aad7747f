// SPDX-License-Identifier: Apache-2.0
//
// How objects are named in the tree: a namespace of objects is that of the caller behind a prefix
// (tree/reserved_names.h), a key is escaped, since names of branches hold no NUL, and a class is a
// model of one plane. Escaped keys are in the order of keys.
//
//   byte 00 -> 01 01      byte 01 -> 01 02      others as they are
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/objects.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

// kInvalidArgument: no key can be so.
Status CheckKey(std::string_view key);
std::string NameOfKey(std::string_view key);

// The key of a name that NameOfKey made; nothing: it made none such. Points into `room`.
using KeyRoom = std::array<char, kMaxObjectKeyBytes>;
std::optional<std::string_view> KeyOfName(std::string_view name, KeyRoom* room);

std::string SpaceOf(std::string_view ns);  // kInvalidArgument names are refused by the tree.
std::string_view CallersName(std::string_view space);

Result<ModelSpec> ModelOf(const ObjectClass& object_class);
// Nothing: the model is none of objects.
std::optional<ObjectClass> ClassOf(const ModelSpec& model);
// Of a branch in a namespace of objects. kCorruption: it is of no class. REQUIRES: the commit lock.
Result<ObjectClass> ClassIn(const Tree& tree, const Head& head);

// Priorities of branches: the lower goes first.
uint8_t PriorityOf(uint32_t depth);
uint32_t DepthOf(uint8_t priority);

// The branch is an object, and not one that lacks its bytes.
bool IsWhole(const Head& head);

}  // namespace cairn::engine
