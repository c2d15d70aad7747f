// SPDX-License-Identifier: Apache-2.0
#include "sstable/memtable.h"

#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/check.h"

namespace cairn::sstable {

// Followed by its tower, the key and the value.
struct MemtableNode {
  MemtableNode* owned_next = nullptr;  // First of a batch, then of all nodes of a memtable.
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  bool tombstone = false;
  uint8_t height = 0;

  using Link = std::atomic<MemtableNode*>;
  Link* tower() { return reinterpret_cast<Link*>(this + 1); }
  char* payload() { return reinterpret_cast<char*>(tower() + height); }
  const char* payload() const { return const_cast<MemtableNode*>(this)->payload(); }
  MemtableNode* next(int level) { return tower()[level].load(std::memory_order_acquire); }
  std::string_view key() const { return {payload(), key_bytes}; }

  static size_t BytesOf(int height, size_t key_bytes, size_t value_bytes) {
    return sizeof(MemtableNode) + static_cast<size_t>(height) * sizeof(Link) + key_bytes +
           value_bytes;
  }
  size_t bytes() const { return BytesOf(height, key_bytes, value_bytes); }
};
static_assert(sizeof(MemtableNode) % alignof(MemtableNode::Link) == 0);
static_assert(kMemtableHeight <= UINT8_MAX);
static_assert(MemtableNode::Link::is_always_lock_free, "readers take no lock");

namespace {

using Node = MemtableNode;

// Null when there is no memory.
Node* MakeNode(const Allocator& allocator, int height, std::string_view key, MaybeValue value) {
  CAIRN_CHECK(height >= 1);
  CAIRN_CHECK(height <= kMemtableHeight);
  const size_t value_bytes = value ? value->size() : 0;
  const size_t bytes = Node::BytesOf(height, key.size(), value_bytes);
  void* memory = allocator.allocate(allocator.context, bytes, alignof(Node));
  if (memory == nullptr) return nullptr;
  Node* node = new (memory) Node;
  node->key_bytes = static_cast<uint32_t>(key.size());
  node->value_bytes = static_cast<uint32_t>(value_bytes);
  node->tombstone = !value;
  node->height = static_cast<uint8_t>(height);
  for (int level = 0; level < height; ++level) new (node->tower() + level) Node::Link(nullptr);
  if (!key.empty()) std::memcpy(node->payload(), key.data(), key.size());
  if (value_bytes > 0) std::memcpy(node->payload() + key.size(), value->data(), value_bytes);
  return node;
}

void FreeNode(const Allocator& allocator, Node* node) {
  allocator.deallocate(allocator.context, node, node->bytes(), alignof(Node));
}

void FreeOwned(const Allocator& allocator, Node* first) {
  while (first != nullptr) FreeNode(allocator, std::exchange(first, first->owned_next));
}

// A quarter of the keys reaches each next level. Depends on the key alone: a record fits where its
// predecessor of the same key stood, and equal runs make equal lists.
int HeightOf(std::string_view key) {
  const uint64_t hash = Hash(std::as_bytes(std::span(key)));
  return std::min(1 + std::countr_zero(hash) / 2, kMemtableHeight);
}

}  // namespace

WriteBatch::WriteBatch(WriteBatch&& other) noexcept
    : allocator_(other.allocator_),
      first_(std::exchange(other.first_, nullptr)),
      last_(std::exchange(other.last_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

WriteBatch& WriteBatch::operator=(WriteBatch&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

WriteBatch::~WriteBatch() { FreeOwned(allocator_, first_); }

Status WriteBatch::Put(std::string_view key, std::string_view value) { return Add(key, value); }

Status WriteBatch::Delete(std::string_view key) { return Add(key, std::nullopt); }

Status WriteBatch::Add(std::string_view key, MaybeValue value) {
  CAIRN_CHECK(key.size() <= kMaxKeyBytes);
  CAIRN_CHECK(!value || value->size() <= kMaxValueBytes);
  Node* node = MakeNode(allocator_, HeightOf(key), key, value);
  if (node == nullptr) {
    return Status(StatusCode::kOutOfMemory, "no memory for an index record of " +
                                                std::to_string(key.size()) + " bytes of key");
  }
  CAIRN_CHECK((first_ == nullptr) == (last_ == nullptr));
  (last_ == nullptr ? first_ : last_->owned_next) = node;
  last_ = node;
  bytes_ += node->bytes();
  return Status::Ok();
}

std::shared_ptr<Memtable> Memtable::TryMake(const Allocator& allocator) {
  const auto free = [&allocator](Node* node) { FreeNode(allocator, node); };
  std::unique_ptr<Node, decltype(free)> head(MakeNode(allocator, kMemtableHeight, {}, std::nullopt),
                                             free);
  if (head == nullptr) return nullptr;
  std::unique_ptr<Memtable> table(new Memtable(allocator, head.get()));
  static_cast<void>(head.release());  // The table owns it, even if shared_ptr throws.
  return table;
}

Memtable::~Memtable() {
  FreeOwned(allocator_, owned_);
  FreeNode(allocator_, head_);
}

Node* Memtable::Detach(WriteBatch& batch) {
  Node* node = batch.first_;
  if (node == nullptr) return nullptr;
  batch.first_ = node->owned_next;
  if (batch.first_ == nullptr) batch.last_ = nullptr;
  CAIRN_CHECK(batch.bytes_ >= node->bytes());
  batch.bytes_ -= node->bytes();
  CAIRN_CHECK(batch.first_ != nullptr || batch.bytes_ == 0);
  return node;
}

std::string_view Memtable::KeyOf(const Node* node) { return node->key(); }

MaybeValue Memtable::ValueOf(const Node* node) {
  if (node->tombstone) return std::nullopt;
  return std::string_view(node->payload() + node->key_bytes, node->value_bytes);
}

Node* Memtable::FindNotLess(std::string_view key, Node** before) const {
  Node* node = head_;
  Node* found = nullptr;
  for (int level = kMemtableHeight - 1; level >= 0; --level) {
    for (Node* next = node->next(level);; next = node->next(level)) {
      // A node that was not less on the level above needs no second comparison.
      if (next == nullptr || next == found || next->key() >= key) {
        found = next;
        break;
      }
      node = next;
    }
    if (before != nullptr) before[level] = node;
  }
  return found;
}

void Memtable::Insert(Node* node) {
  Node* before[kMemtableHeight];
  Node* const found = FindNotLess(node->key(), before);
  const bool replaces = found != nullptr && found->key() == node->key();
  CAIRN_CHECK(!replaces || found->height == node->height);
  node->owned_next = std::exchange(owned_, node);
  for (int level = 0; level < node->height; ++level) {
    CAIRN_CHECK(!replaces || before[level]->next(level) == found);
    Node* const behind = replaces ? found->next(level) : before[level]->next(level);
    node->tower()[level].store(behind, std::memory_order_relaxed);
  }
  for (int level = 0; level < node->height; ++level) {
    before[level]->tower()[level].store(node, std::memory_order_release);
  }
  bytes_.fetch_add(node->bytes(), std::memory_order_relaxed);
}

std::optional<MaybeValue> Memtable::Get(std::string_view key) const {
  const Node* node = FindNotLess(key, nullptr);
  if (node == nullptr || node->key() != key) return std::nullopt;
  return std::optional<MaybeValue>(ValueOf(node));
}

bool Memtable::empty() const { return head_->next(0) == nullptr; }

class Memtable::Iterator final : public RecordIterator {
 public:
  explicit Iterator(std::shared_ptr<const Memtable> memtable) : memtable_(std::move(memtable)) {}

  void Seek(std::string_view target) override { node_ = memtable_->FindNotLess(target, nullptr); }
  void Next() override {
    CAIRN_CHECK(node_ != nullptr);
    node_ = node_->next(0);
  }
  bool valid() const override { return node_ != nullptr; }
  std::string_view key() const override {
    CAIRN_CHECK(node_ != nullptr);
    return node_->key();
  }
  MaybeValue value() const override {
    CAIRN_CHECK(node_ != nullptr);
    return ValueOf(node_);
  }
  Status status() const override { return Status::Ok(); }

 private:
  const std::shared_ptr<const Memtable> memtable_;
  Node* node_ = nullptr;
};

std::unique_ptr<RecordIterator> Memtable::NewIterator() const {
  return std::make_unique<Iterator>(shared_from_this());
}

}  // namespace cairn::sstable
