// SPDX-License-Identifier: Apache-2.0
//
// Plans of prompts, and prompts of documents, in C.
#include <memory>

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/query.h"
#include "api/c/restored.h"

using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.
using cairn::Result;
using cairn::Status;

namespace cairn::capi {

namespace {

// A plan as C sees it, and the C++ plan that restores take.
struct PlanHolder : cairn_blend_plan {
  explicit PlanHolder(BlendPlan from) : cairn_blend_plan{}, value(std::move(from)) {
    for (const BlendSegment& segment : value.segments) {
      segments_.push_back({segment.begin,
                           segment.end,
                           static_cast<uint64_t>(segment.node),
                           segment.source,
                           static_cast<uint64_t>(segment.match),
                           {segment.digest[0], segment.digest[1]}});
    }
    for (const BlendStep& step : value.steps) {
      steps_.push_back({step.begin, step.end, step.loads ? 1U : 0U});
    }
    struct_size = sizeof(cairn_blend_plan);
    model = static_cast<uint64_t>(value.model);
    tokens = value.tokens;
    segments = segments_.data();
    segment_count = segments_.size();
    steps = steps_.data();
    step_count = steps_.size();
    exact = value.exact;
    load_tokens = value.load_tokens;
    compute_tokens = value.compute_tokens;
    load_bytes = value.load_bytes;
    complete = value.complete;
    positions_checked = value.positions_checked;
    position_correction = value.position_correction;
    lease = static_cast<uint64_t>(value.lease);
  }
  PlanHolder(const PlanHolder&) = delete;
  PlanHolder& operator=(const PlanHolder&) = delete;

  const BlendPlan value;

 private:
  std::vector<cairn_blend_segment> segments_;
  std::vector<cairn_blend_step> steps_;
};

struct ComposedHolder : cairn_composed {
  explicit ComposedHolder(Composed from)
      : cairn_composed{}, value_(std::move(from)), plan_(std::move(value_.plan)) {
    for (const ContentSpan& span : value_.spans) spans_.push_back(ToC(span));
    for (const ComposedDocument& one : value_.documents) {
      documents_.push_back(
          {one.name.c_str(), static_cast<uint64_t>(one.branch), one.begin, one.end});
    }
    struct_size = sizeof(cairn_composed);
    tokens = value_.tokens.data();
    token_count = value_.tokens.size();
    spans = spans_.data();
    span_count = spans_.size();
    documents = documents_.data();
    document_count = documents_.size();
    plan = &plan_;
  }
  ComposedHolder(const ComposedHolder&) = delete;
  ComposedHolder& operator=(const ComposedHolder&) = delete;

 private:
  Composed value_;
  const PlanHolder plan_;
  std::vector<cairn_content_span> spans_;
  std::vector<cairn_composed_document> documents_;
};

BlendOptions OptionsOf(const cairn_blend_options* options) {
  return options == nullptr ? BlendOptions() : options->value;
}

cairn_code MakeOptions(cairn_blend_options** options, cairn_error** error,
                       BlendOptions (*defaults)()) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(options);
    *options = new cairn_blend_options{defaults()};
    return Status::Ok();
  });
}

Result<ComposeRequest> ToRequest(const cairn_compose_request* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_compose_request read, Read(given));
  CAIRN_RETURN_IF_ERROR(CheckCount(read.separator, read.separator_count, INT32_MAX,
                                   "cairn_compose_request::separator"));
  CAIRN_RETURN_IF_ERROR(
      CheckCount(read.question, read.question_count, INT32_MAX, "cairn_compose_request::question"));
  ComposeRequest request;
  request.model = ModelId{read.model};
  request.ns = Text(read.ns);
  request.separator = {read.separator, read.separator_count};
  request.question = {read.question, read.question_count};
  request.lease_ns = read.lease_ns;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn_compose_document> documents,
                         ReadAll(read.documents, read.document_count, kMaxComposed,
                                 "cairn_compose_request::documents"));
  for (const cairn_compose_document& one : documents) {
    request.documents.push_back({.name = std::string(Text(one.name)),
                                 .is_beginning = one.is_beginning,
                                 .begin = one.begin,
                                 .end = one.end});
  }
  return request;
}

}  // namespace

}  // namespace cairn::capi

extern "C" {

cairn_code cairn_blend_options_create(cairn_blend_options** options, cairn_error** error) {
  return MakeOptions(options, error, [] { return cairn::BlendOptions(); });
}
cairn_code cairn_blend_options_lmcache(cairn_blend_options** options, cairn_error** error) {
  return MakeOptions(options, error, cairn::BlendOptions::Lmcache);
}
cairn_code cairn_blend_options_ucm(cairn_blend_options** options, cairn_error** error) {
  return MakeOptions(options, error, cairn::BlendOptions::Ucm);
}
void cairn_blend_options_free(cairn_blend_options* options) { delete options; }
cairn_code cairn_blend_options_set(cairn_blend_options* options, const char* name,
                                   const char* value, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(options);
    CAIRN_C_NEED(name);
    CAIRN_C_NEED(value);
    return cairn::SetBlendOption(&options->value, name, value);
  });
}

const char* cairn_blend_match_name(cairn_blend_match match) {
  return match > CAIRN_BLEND_MATCH_PARTIAL
             ? "unknown"
             : cairn::BlendMatchName(static_cast<cairn::BlendMatch>(match));
}

cairn_code cairn_store_plan_blend(const cairn_store* store, const cairn_prefix_query* query,
                                  const cairn_blend_options* options, cairn_blend_plan** plan,
                                  cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(plan);
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(query);
    QueryArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(query));
    CAIRN_ASSIGN_OR_RETURN(cairn::BlendPlan made,
                           store->value.PlanBlend(arrays.query, OptionsOf(options)));
    *plan = std::make_unique<PlanHolder>(std::move(made)).release();
    return Status::Ok();
  });
}
void cairn_blend_plan_free(cairn_blend_plan* plan) { delete static_cast<PlanHolder*>(plan); }

cairn_code cairn_store_restore_plan(const cairn_store* store, const cairn_blend_plan* plan,
                                    const cairn_restore_request* request,
                                    cairn_layer_progress* progress, cairn_restore_result** result,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (result != nullptr) *result = nullptr;
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(plan);
    CAIRN_C_NEED(request);
    RestoreArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(request));
    auto holder = std::make_unique<Restored>();
    CAIRN_ASSIGN_OR_RETURN(
        cairn::RestoreResult restored,
        store->value.Restore(static_cast<const PlanHolder*>(plan)->value, arrays.request,
                             progress == nullptr ? nullptr : &progress->value));
    holder->Set(std::move(restored));
    if (result != nullptr) *result = holder.release();
    return Status::Ok();
  });
}

cairn_code cairn_store_compose(const cairn_store* store, const cairn_compose_request* request,
                               const cairn_blend_options* options, cairn_composed** composed,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(composed);
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(request);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ComposeRequest converted, ToRequest(request));
    CAIRN_ASSIGN_OR_RETURN(cairn::Composed made,
                           store->value.Compose(converted, OptionsOf(options)));
    *composed = std::make_unique<ComposedHolder>(std::move(made)).release();
    return Status::Ok();
  });
}
void cairn_composed_free(cairn_composed* composed) {
  delete static_cast<ComposedHolder*>(composed);
}

}  // extern "C"
