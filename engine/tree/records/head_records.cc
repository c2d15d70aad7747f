// SPDX-License-Identifier: Apache-2.0
//
// Records of a branch: B, H, its R record, and its places in the orders of eviction and expiry.
#include <array>
#include <cstring>
#include <string>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

namespace {

// Fields of a head; on disk, never change.
enum HeadField : uint16_t {
  kHeadId = 1,
  kHeadModel = 2,
  kHeadNode = 3,
  kHeadLengths = 4,
  kHeadCreated = 5,
  kHeadUpdated = 6,
  kHeadVersion = 7,
  kHeadUsed = 8,
  kHeadKeep = 9,  // KeepBytes; if absent: all zero.
};
constexpr std::array<uint16_t, 9> kHeadFields = {1, 2, 3, 4, 5, 6, 7, 8, 9};

struct KeepBytes {
  uint64_t ttl_ns;
  uint8_t priority, pinned, kv_evicted, reused;
  uint32_t zero;
};
static_assert(sizeof(KeepBytes) == 16);

Status Move(const std::string& from, const std::string& to, sstable::WriteBatch* batch) {
  if (from == to) return Status::Ok();
  if (!from.empty()) CAIRN_RETURN_IF_ERROR(batch->Delete(from));
  return to.empty() ? Status::Ok() : batch->Put(to, "");
}

// The records that order branches for eviction and expiry.
Status PutOrders(const Head& head, sstable::WriteBatch* batch) {
  const Head::Flushed& was = head.flushed;
  std::string order, expiry, order_was, expiry_was;
  if (!head.gone) {
    order = OrderKey(head, head.keep, head.used_at_ns, head.kv_evicted);
    expiry = ExpiryKey(head, head.keep, head.used_at_ns);
  }
  if (was.there) {
    order_was = OrderKey(head, was.keep, was.used_at_ns, was.kv_evicted);
    expiry_was = ExpiryKey(head, was.keep, was.used_at_ns);
  }
  CAIRN_RETURN_IF_ERROR(Move(order_was, order, batch));
  return Move(expiry_was, expiry, batch);
}

}  // namespace

bool IsRenamed(const Head& head) { return head.flushed.there && head.flushed.name != head.name; }

Status DeleteName(const Head& head, sstable::WriteBatch* batch) {
  return batch->Delete('B' + NameBytes(head.ns, head.flushed.name, head.id));
}

Status PutHead(const Head& head, sstable::WriteBatch* batch) {
  const Head::Flushed& flushed = head.flushed;
  const std::string name = NameBytes(head.ns, head.name, head.id);
  FieldWriter fields;
  fields.U64(kHeadId, head.id);
  fields.U64(kHeadModel, head.model);
  fields.U64(kHeadNode, head.node);
  fields.Bytes(kHeadLengths, std::as_bytes(std::span(head.lengths)));
  fields.U64(kHeadCreated, head.created_at_ns);
  fields.U64(kHeadUpdated, head.updated_at_ns);
  fields.U64(kHeadVersion, head.version);
  fields.U64(kHeadUsed, head.used_at_ns);
  const KeepBytes keep{head.keep.ttl_ns, head.keep.priority, head.keep.pinned,
                       head.kv_evicted,  head.reused,        0};
  fields.Bytes(kHeadKeep, std::as_bytes(std::span(&keep, 1)));
  CAIRN_RETURN_IF_ERROR(PutOrders(head, batch));
  CAIRN_RETURN_IF_ERROR(batch->Put('B' + name, Text(fields.bytes())));
  if (!flushed.there || IsRenamed(head)) CAIRN_RETURN_IF_ERROR(batch->Put(Key('H', head.id), name));
  const uint64_t length = head.lengths[kTokenLane];
  if (flushed.node == head.node && flushed.length == length) return Status::Ok();
  if (flushed.node != 0) {
    CAIRN_RETURN_IF_ERROR(
        batch->Delete(RefKey(flushed.node, {flushed.length, Ref::kHead, head.id})));
  }
  if (head.node == 0) return Status::Ok();
  return batch->Put(RefKey(head.node, {length, Ref::kHead, head.id}), "");
}

Status DeleteHead(const Head& head, sstable::WriteBatch* batch) {
  const Head::Flushed& flushed = head.flushed;
  if (!flushed.there) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(DeleteName(head, batch));
  CAIRN_RETURN_IF_ERROR(PutOrders(head, batch));
  CAIRN_RETURN_IF_ERROR(batch->Delete(Key('H', head.id)));
  if (flushed.node == 0) return Status::Ok();
  return batch->Delete(RefKey(flushed.node, {flushed.length, Ref::kHead, head.id}));
}

Result<Head> GetHead(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader fields, FieldReader::Parse(Bytes(value)));
  CAIRN_RETURN_IF_ERROR(fields.CheckCritical(kHeadFields));
  Head head;
  const size_t ns_end = key.find('\0', 1);
  const size_t name_end = ns_end == key.npos ? key.npos : key.find('\0', ns_end + 1);
  if (name_end == key.npos) return Damaged(key, "no name");
  head.ns = key.substr(1, ns_end - 1);
  head.name = key.substr(ns_end + 1, name_end - ns_end - 1);
  head.id = fields.U64Or(kHeadId, 0);
  head.model = fields.U64Or(kHeadModel, 0);
  head.node = fields.U64Or(kHeadNode, 0);
  head.created_at_ns = fields.U64Or(kHeadCreated, 0);
  head.updated_at_ns = fields.U64Or(kHeadUpdated, 0);
  head.version = fields.U64Or(kHeadVersion, 0);
  const auto lengths = fields.BytesOr(kHeadLengths, {});
  if (lengths.empty() || lengths.size() % sizeof(uint64_t) != 0 ||
      key.substr(1) != NameBytes(head.ns, head.name, head.id)) {
    return Damaged(key, "bad lengths or another branch");
  }
  head.lengths.resize(lengths.size() / sizeof(uint64_t));
  std::memcpy(head.lengths.data(), lengths.data(), lengths.size());
  head.used_at_ns = fields.U64Or(kHeadUsed, 0);
  KeepBytes keep{};
  if (const auto bytes = fields.BytesOr(kHeadKeep, {}); bytes.size() == sizeof(keep)) {
    std::memcpy(&keep, bytes.data(), sizeof(keep));
  } else {
    return Damaged(key, "bad policy");
  }
  head.keep = {.pinned = keep.pinned != 0, .priority = keep.priority, .ttl_ns = keep.ttl_ns};
  head.kv_evicted = keep.kv_evicted != 0;
  head.reused = keep.reused != 0;
  CAIRN_RETURN_IF_ERROR(CheckHead(key, head));
  MarkFlushed(&head);
  return head;
}

// Memory for a flushed head's name was reserved.
void MarkFlushed(Head* head) {
  head->flushed.there = true;
  head->flushed.name = head->name;
  head->flushed.node = head->node;
  head->flushed.length = head->lengths[kTokenLane];
  head->flushed.keep = head->keep;
  head->flushed.used_at_ns = head->used_at_ns;
  head->flushed.kv_evicted = head->kv_evicted;
}

}  // namespace cairn::engine
