// SPDX-License-Identifier: Apache-2.0
//
// Finding prefixes in C.
#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/query.h"
#include "api/c/restored.h"

using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.
using cairn::Result;
using cairn::Status;

namespace cairn::capi {

namespace {

cairn_prefix_hit HitAsC(const cairn::PrefixHit& hit) {
  auto c = Sized<cairn_prefix_hit>::Default();
  c.node = static_cast<uint64_t>(hit.node);
  c.matched = hit.matched;
  c.restorable = hit.restorable;
  c.exact = hit.exact;
  c.confirmed = hit.confirmed;
  c.complete = hit.complete;
  c.lease = static_cast<uint64_t>(hit.lease);
  c.seen[0] = hit.seen.opening;
  c.seen[1] = hit.seen.generation;
  c.seen[2] = hit.seen.changes;
  c.seen[3] = hit.seen.digest[0];
  c.seen[4] = hit.seen.digest[1];
  c.longest_node = static_cast<uint64_t>(hit.longest.node);
  c.longest_matched = hit.longest.matched;
  return c;
}

Result<cairn::PrefixHit> ToHit(const cairn_prefix_hit* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_prefix_hit read, Read(given));
  cairn::PrefixHit hit;
  hit.node = cairn::NodeId{read.node};
  hit.matched = read.matched;
  hit.restorable = read.restorable;
  hit.exact = read.exact;
  hit.confirmed = read.confirmed;
  hit.complete = read.complete;
  hit.lease = cairn::LeaseId{read.lease};
  hit.seen.opening = read.seen[0];
  hit.seen.generation = read.seen[1];
  hit.seen.changes = read.seen[2];
  hit.seen.digest[0] = read.seen[3];
  hit.seen.digest[1] = read.seen[4];
  hit.longest.node = cairn::NodeId{read.longest_node};
  hit.longest.matched = read.longest_matched;
  return hit;
}

}  // namespace

Status QueryArrays::Fill(const cairn_prefix_query* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_prefix_query read, Read(given));
  CAIRN_RETURN_IF_ERROR(
      CheckCount(read.tokens, read.token_count, INT32_MAX, "cairn_prefix_query::tokens"));
  // A prompt is many appends, each with spans of its own; none is shorter than a token.
  CAIRN_RETURN_IF_ERROR(ToSpans(read.spans, read.span_count, read.token_count, &spans_));
  CAIRN_RETURN_IF_ERROR(
      CheckCount(read.also, read.also_count, kMaxQueryNamespaces, "cairn_prefix_query::also"));
  for (size_t i = 0; i < read.also_count; ++i) also_.push_back(Text(read.also[i]));
  query = {.model = ModelId{read.model},
           .tokens = {read.tokens, read.token_count},
           .spans = spans_,
           .ns = Text(read.ns),
           .also = also_,
           .lease_ns = read.lease_ns,
           .memory_only = read.memory_only,
           .confirm = read.confirm,
           .approximate = read.approximate};
  return Status::Ok();
}

}  // namespace cairn::capi

extern "C" {

cairn_code cairn_store_find_prefix(const cairn_store* store, const cairn_prefix_query* query,
                                   cairn_prefix_hit* hit, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(query);
    CAIRN_C_NEED(hit);
    CAIRN_RETURN_IF_ERROR(CheckStructSize(hit, sizeof(*hit), "cairn_prefix_hit"));
    QueryArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(query));
    CAIRN_ASSIGN_OR_RETURN(const cairn::PrefixHit found, store->value.FindPrefix(arrays.query));
    Write(HitAsC(found), hit);
    return Status::Ok();
  });
}

cairn_code cairn_store_fork(cairn_store* store, const cairn_prefix_hit* hit, uint64_t position,
                            const cairn_branch_options* options, cairn_branch** branch,
                            cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(branch);
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(hit);
    CAIRN_ASSIGN_OR_RETURN(const cairn::PrefixHit from, ToHit(hit));
    CAIRN_ASSIGN_OR_RETURN(const cairn::BranchOptions converted, ToBranchOptions(options));
    return Give(branch, [&] { return store->value.Fork(from, position, converted); });
  });
}

cairn_code cairn_store_restore(const cairn_store* store, const cairn_prefix_hit* hit,
                               const cairn_restore_request* request, cairn_layer_progress* progress,
                               cairn_restore_result** result, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (result != nullptr) *result = nullptr;
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(hit);
    CAIRN_C_NEED(request);
    CAIRN_ASSIGN_OR_RETURN(const cairn::PrefixHit from, ToHit(hit));
    RestoreArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(request));
    auto holder = std::make_unique<Restored>();
    CAIRN_ASSIGN_OR_RETURN(cairn::RestoreResult restored,
                           store->value.Restore(from, arrays.request,
                                                progress == nullptr ? nullptr : &progress->value));
    holder->Set(std::move(restored));
    if (result != nullptr) *result = holder.release();
    return Status::Ok();
  });
}

cairn_code cairn_store_renew(cairn_store* store, uint64_t lease, uint64_t lease_ns,
                             cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    return store->value.Renew(cairn::LeaseId{lease}, lease_ns);
  });
}
cairn_code cairn_store_release(cairn_store* store, uint64_t lease, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    return store->value.Release(cairn::LeaseId{lease});
  });
}

}  // extern "C"
