// SPDX-License-Identifier: Apache-2.0
//
// Shadows in C.
#include "api/c/convert.h"
#include "api/c/handles.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

cairn::Result<cairn::ShadowSpec> ToShadowSpec(const cairn_shadow_spec* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_shadow_spec read, Read(given));
  cairn::ShadowSpec spec{.chunk_tokens = read.chunk_tokens,
                         .landmark_bits = read.landmark_bits,
                         .local_tokens = read.local_tokens,
                         .sink_tokens = read.sink_tokens,
                         .outlier_share = read.outlier_share,
                         .outlier_chunks = read.outlier_chunks,
                         .budget_tokens = read.budget_tokens,
                         .rank = read.rank,
                         .rank_energy = read.rank_energy};
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.keys, cairn::ShadowKeys::kLowRank, "cairn_shadow_spec::keys", &spec.keys));
  return spec;
}

cairn::Result<cairn::ShadowOf> ToShadowOf(const cairn_shadow_of* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_shadow_of read, Read(given));
  CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowSpec spec, ToShadowSpec(read.spec));
  return cairn::ShadowOf{.spec = spec, .group = read.group, .end = read.end};
}

cairn::Result<cairn::ShadowOptions> ToShadowOptions(const cairn_shadow_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_shadow_options read, Read(given));
  CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowSpec spec, ToShadowSpec(read.spec));
  return cairn::ShadowOptions{.spec = spec,
                              .group = read.group,
                              .end = read.end,
                              .query_heads = read.query_heads,
                              .slots = read.slots,
                              .append_tokens = read.append_tokens,
                              .tokens_max = read.tokens_max,
                              .build = read.build};
}

cairn::Result<cairn::ShadowFetch> ToShadowFetch(const cairn_shadow_fetch* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_shadow_fetch read, Read(given));
  cairn::ShadowFetch fetch{
      .layer = read.layer, .stream = read.stream, .timeout_ns = read.timeout_ns};
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.mode, cairn::SparseMode::kRelaxed, "cairn_shadow_fetch::mode", &fetch.mode));
  return fetch;
}

cairn_shadow_view ToC(const cairn::ShadowView& view) {
  auto c = Sized<cairn_shadow_view>::Default();
  c.resident_keys = view.resident_keys;
  c.resident_values = view.resident_values;
  c.resident_key_stride = view.resident_key_stride;
  c.resident_value_stride = view.resident_value_stride;
  c.resident_tokens = view.resident_tokens;
  c.count = view.count;
  c.stride = view.stride;
  c.chunks = view.chunks;
  c.key_slot_of = view.key_slot_of;
  c.value_slot_of = view.value_slot_of;
  c.keys = {view.keys.base, view.keys.head_stride, view.keys.piece_bytes};
  c.values = {view.values.base, view.values.head_stride, view.values.piece_bytes};
  return c;
}

Status CheckInfo(const cairn_shadow_info* info) {
  if (info == nullptr) return Status::Ok();
  return CheckStructSize(info, sizeof(*info), "cairn_shadow_info");
}

void GiveInfo(const cairn::ShadowInfo& told, cairn_shadow_info* info) {
  if (info == nullptr) return;
  auto c = Sized<cairn_shadow_info>::Default();
  c.tokens = told.tokens;
  c.covered = told.covered;
  c.chunks = told.chunks;
  c.always_chunks = told.always_chunks;
  c.budget_chunks = told.budget_chunks;
  c.table_bytes = told.table_bytes;
  c.tokens_read = told.tokens_read;
  Write(c, info);
}

template <typename Ask>
cairn_code TellShadow(Ask ask, const cairn_branch* branch, const cairn_shadow_of* of,
                      cairn_shadow_info* info, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    CAIRN_RETURN_IF_ERROR(CheckInfo(info));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowOf converted, ToShadowOf(of));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowInfo told, ask(branch->value, converted));
    GiveInfo(told, info);
    return Status::Ok();
  });
}

}  // namespace

extern "C" {

const char* cairn_shadow_keys_name(cairn_shadow_keys keys) {
  if (keys < CAIRN_SHADOW_KEYS_EXACT || keys > CAIRN_SHADOW_KEYS_LOW_RANK) return nullptr;
  return cairn::ShadowKeysName(static_cast<cairn::ShadowKeys>(keys));
}

cairn_code cairn_shadow_spec_published(uint32_t key_channels, cairn_shadow_spec* spec,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(spec);
    CAIRN_RETURN_IF_ERROR(CheckStructSize(spec, sizeof(*spec), "cairn_shadow_spec"));
    Write(ToC(cairn::ShadowSpec::Published(key_channels)), spec);
    return Status::Ok();
  });
}

cairn_code cairn_build_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                              cairn_shadow_info* info, cairn_error** error) {
  return TellShadow(cairn::BuildShadow, branch, of, info, error);
}
cairn_code cairn_find_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                             cairn_shadow_info* info, cairn_error** error) {
  return TellShadow(cairn::FindShadow, branch, of, info, error);
}
cairn_code cairn_drop_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                             cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowOf converted, ToShadowOf(of));
    return cairn::DropShadow(branch->value, converted);
  });
}

cairn_code cairn_shadow_session_open(const cairn_sparse_arena* arena, const cairn_branch* branch,
                                     const cairn_shadow_options* options,
                                     cairn_shadow_session** session, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(session);
    CAIRN_C_NEED(arena);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowOptions converted, ToShadowOptions(options));
    return Give(session,
                [&] { return cairn::ShadowSession::Open(arena->value, branch->value, converted); });
  });
}

cairn_code cairn_shadow_session_select(cairn_shadow_session* session,
                                       const cairn_shadow_query* query, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(query);
    CAIRN_ASSIGN_OR_RETURN(const cairn_shadow_query read, Read(query));
    return session->value.Select({.layer = read.layer,
                                  .queries = read.queries,
                                  .is_fp32 = read.is_fp32,
                                  .head_stride = read.head_stride,
                                  .scale = read.scale,
                                  .stream = read.stream});
  });
}

cairn_code cairn_shadow_session_fetch(cairn_shadow_session* session,
                                      const cairn_shadow_fetch* fetch, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(fetch);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowFetch converted, ToShadowFetch(fetch));
    return session->value.Fetch(converted);
  });
}

cairn_code cairn_shadow_session_rebuild(cairn_shadow_session* session, uint32_t layer,
                                        uintptr_t stream, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return session->value.Rebuild(layer, stream);
  });
}

cairn_code cairn_shadow_session_view(const cairn_shadow_session* session, uint32_t layer,
                                     cairn_shadow_view* view, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(view);
    CAIRN_RETURN_IF_ERROR(CheckStructSize(view, sizeof(*view), "cairn_shadow_view"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ShadowView there, session->value.View(layer));
    Write(ToC(there), view);
    return Status::Ok();
  });
}

cairn_code cairn_shadow_session_append(cairn_shadow_session* session, const cairn_shadow_rows* rows,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(rows);
    CAIRN_ASSIGN_OR_RETURN(const cairn_shadow_rows read, Read(rows));
    return session->value.Append({.layer = read.layer,
                                  .keys = static_cast<const std::byte*>(read.keys),
                                  .values = static_cast<const std::byte*>(read.values),
                                  .key_stride = read.key_stride,
                                  .value_stride = read.value_stride,
                                  .stream = read.stream});
  });
}

cairn_code cairn_shadow_session_extend(cairn_shadow_session* session, uint64_t end,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return session->value.Extend(end);
  });
}

cairn_code cairn_shadow_session_prefetch(cairn_shadow_session* session, uint32_t layer,
                                         const uint32_t* chunks, uint32_t count, uint32_t stride,
                                         cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return session->value.Prefetch(layer, chunks, count, stride);
  });
}

cairn_code cairn_shadow_session_save(cairn_shadow_session* session, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return session->value.Save();
  });
}

cairn_code cairn_shadow_session_info(const cairn_shadow_session* session, cairn_shadow_info* info,
                                     cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(info);
    CAIRN_RETURN_IF_ERROR(CheckInfo(info));
    GiveInfo(session->value.info(), info);
    return Status::Ok();
  });
}
uint64_t cairn_shadow_session_device_bytes(const cairn_shadow_session* session) {
  return session == nullptr ? 0 : session->value.device_bytes();
}
cairn_code cairn_shadow_session_stats(const cairn_shadow_session* session,
                                      cairn_sparse_stats* stats, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return GiveStats(session->value.stats(), stats);
  });
}
void cairn_shadow_session_free(cairn_shadow_session* session) { delete session; }

}  // extern "C"
