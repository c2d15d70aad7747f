// SPDX-License-Identifier: Apache-2.0
//
// Results of calls as C structs: one object that is that struct, and owns the C++ value that its
// pointers point into.
#pragma once

#include <deque>
#include <utility>
#include <vector>

namespace cairn::capi {

// A C struct, such as cairn_branch_info, that `AsC` makes from a Value.
template <typename AsC, typename Value>
struct Holding : private Value, AsC {
  explicit Holding(Value value) : Value(std::move(value)), AsC(static_cast<const Value&>(*this)) {}
};

// The items of a list: each an `AsC`, which has a base `Item` and points into a Value.
template <typename Item, typename AsC, typename Value>
class Items {
 public:
  explicit Items(std::vector<Value> values) : values_(std::move(values)) {
    pointers_.reserve(values_.size());
    for (const Value& value : values_) pointers_.push_back(&items_.emplace_back(value));
  }
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;
  const Item* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  std::vector<Value> values_;
  std::deque<AsC> items_;  // Its elements do not move.
  std::vector<const Item*> pointers_;
};

// A C struct {struct_size, items, count} of such items, or one that begins so.
template <typename List, typename Item, typename AsC, typename Value>
struct ListOf : List {
  explicit ListOf(std::vector<Value> values) : List{}, all(std::move(values)) {
    this->struct_size = sizeof(List);
    this->items = all.data();
    this->count = all.size();
  }
  Items<Item, AsC, Value> all;
};

// The same for structs that never get another field, which lie one behind the other.
template <typename List, typename Item>
struct PlainListOf : List {
  template <typename Values, typename Convert>
  PlainListOf(const Values& values, const Convert& convert) : List{} {
    all.reserve(values.size());
    for (const auto& value : values) all.push_back(convert(value));
    this->struct_size = sizeof(List);
    this->items = all.data();
    this->count = all.size();
  }
  std::vector<Item> all;
};

}  // namespace cairn::capi
