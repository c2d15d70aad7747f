// SPDX-License-Identifier: Apache-2.0
//
// Names of objects in the tree: a namespace of objects has the caller's name behind a prefix
// (tree/memory/reserved_names.h); a key is escaped, since names of branches hold no NUL; and a
// class is a model of one plane. Escaped keys sort like keys.
//
//   byte 00 -> 01 01      byte 01 -> 01 02      others as they are
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/objects.h"
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

// kInvalidArgument: not a valid key.
Status CheckKey(std::string_view key);
std::string NameOfKey(std::string_view key);

// The key of a name that NameOfKey made; nothing: it did not make this one. Points into `room`.
using KeyCapacity = std::array<char, kMaxObjectKeyBytes>;
std::optional<std::string_view> KeyOfName(std::string_view name, KeyCapacity* room);

std::string SpaceOf(std::string_view ns);  // The tree refuses invalid names.
std::string_view CallersName(std::string_view space);

Result<ModelSpec> ModelOf(const ObjectClass& object_class);
// Nothing: the model is no class.
std::optional<ObjectClass> ClassOf(const ModelSpec& model);
// For a branch in a namespace of objects. kCorruption: it has no class. REQUIRES: the commit lock.
Result<ObjectClass> ClassIn(const Tree& tree, const Head& head);

// Priorities of branches: lower ones are evicted first.
uint8_t PriorityOf(uint32_t depth);
uint32_t DepthOf(uint8_t priority);

// The branch is an object that has its bytes.
bool IsWhole(const Head& head);

}  // namespace cairn::engine
