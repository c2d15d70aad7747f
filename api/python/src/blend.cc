// SPDX-License-Identifier: Apache-2.0
//
// Store.plan_blend and Store.compose, and the methods of their results.
#include <algorithm>

#include "api/python/src/branch.h"
#include "api/python/src/model.h"
#include "api/python/src/names.h"
#include "cairn/compose.h"

namespace cairn::python {

namespace {

// A plan, and the store that made it.
struct PyPlan {
  BlendPlan plan;
  nb::object store;
  std::shared_ptr<const ModelSpec> spec;
  Store& open() const { return nb::cast<OpenStore&>(store).store(); }
};

struct PyComposed {
  nb::object tokens, plan;
  std::vector<ContentSpan> spans;
  std::vector<ComposedDocument> documents;
};

// A stretch of a plan's prompt, as UCM's blending sees it.
struct PlanChunk {
  uint64_t begin = 0, end = 0;
  BlendMatch match{};
  uint64_t loaded = 0;  // Tokens.
};

// ---------------------------------------------------------------- options

std::string TextOf(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

// "12,13" of numbers in a row.
std::string JoinedText(nb::handle numbers, const char* between) {
  std::string text;
  for (const nb::handle number : numbers) {
    if (!text.empty()) text += between;
    text += TextOf(number);
  }
  return text;
}

std::string SourceText(nb::handle source) {
  const auto part = [&](int i) { return source[i]; };
  const std::string branch =
      nb::isinstance<PyBranch>(part(0))
          ? std::to_string(static_cast<uint64_t>(nb::cast<PyBranch&>(part(0)).branch.id()))
          : TextOf(part(0));
  return branch + ":" + TextOf(part(1)) + "-" + TextOf(part(2)) + "@" + TextOf(part(3));
}

std::string ValueText(const std::string& name, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value) ? "on" : "off";
  const bool is_row = nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
  if (!is_row) return TextOf(value);
  std::string text;
  const char* const between = name == "separators" ? ";" : ",";
  for (const nb::handle one : value) {
    if (!text.empty()) text += between;
    if (name == "sources") {
      text += SourceText(one);
    } else {
      text += JoinedText(one, name == "recompute" ? "-" : ",");
    }
  }
  return text;
}

BlendOptions OptionsOf(const nb::dict& given, std::string_view defaults) {
  BlendOptions options;
  if (defaults == "lmcache") {
    options = BlendOptions::Lmcache();
  } else if (defaults == "ucm") {
    options = BlendOptions::Ucm();
  } else if (defaults != "cairn") {
    throw StatusError(
        Status(StatusCode::kInvalidArgument, "defaults is not \"cairn\", \"lmcache\" or \"ucm\""));
  }
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    Check(SetBlendOption(&options, name, ValueText(name, value)));
  }
  return options;
}

// ---------------------------------------------------------------- plans

PyPlan Plan(nb::handle self, const Model& model, nb::handle tokens, const std::string& ns,
            const std::vector<std::string>& also, std::vector<ContentSpan> spans, double lease,
            bool memory_only, bool approximate, const nb::dict& options,
            const std::string& defaults) {
  nb::cast<OpenStore&>(self).CheckModel(model);
  const Ids ids(tokens, "tokens");
  const std::vector<std::string_view> others(also.begin(), also.end());
  const PrefixQuery query{.model = model.id,
                          .tokens = ids.span(),
                          .spans = spans,
                          .ns = ns,
                          .also = others,
                          .lease_ns = DurationNs(lease, "lease"),
                          .memory_only = memory_only,
                          .approximate = approximate};
  const BlendOptions read = OptionsOf(options, defaults);
  Store& store = nb::cast<OpenStore&>(self).store();
  return {.plan = Take(Unlocked([&] { return store.PlanBlend(query, read); })),
          .store = nb::borrow(self),
          .spec = model.spec};
}

RestoreResult Restore(const PyPlan& self, nb::handle into, uint64_t begin,
                      std::optional<uint64_t> end, std::optional<double> timeout,
                      nb::handle progress, uintptr_t gpu_ready, std::vector<uintptr_t> layer_events,
                      bool fall_back_to_host) {
  nb::cast<OpenStore&>(self.store).Sweep();
  RestoreArguments arguments(self.spec.get(), into, nb::none(), begin, end, /*require_kv=*/true,
                             timeout, progress, gpu_ready, std::move(layer_events),
                             fall_back_to_host);
  Store& store = self.open();
  return Take(Unlocked(
      [&] { return store.Restore(self.plan, arguments.request(), arguments.progress()); }));
}

// One element a token, of an array of numpy that owns them.
template <typename Element>
nb::object PerToken(const BlendPlan& plan, Element nothing,
                    const std::function<void(std::vector<Element>*)>& fill) {
  auto kept = std::make_unique<std::vector<Element>>(plan.tokens, nothing);
  fill(kept.get());
  Element* const data = kept->data();
  const size_t count = kept->size();
  nb::capsule owner(kept.release(), [](void* memory) noexcept {
    delete static_cast<std::vector<Element>*>(memory);
  });
  return nb::cast(nb::ndarray<nb::numpy, Element, nb::ndim<1>>(data, {count}, owner));
}

nb::object PositionMapping(const PyPlan& self) {
  return PerToken<int64_t>(self.plan, -1, [&](std::vector<int64_t>* positions) {
    for (const BlendSegment& segment : self.plan.segments) {
      if (segment.match == BlendMatch::kNone) continue;
      for (uint64_t at = segment.begin; at < segment.end; ++at) {
        (*positions)[at] = static_cast<int64_t>(segment.source + at - segment.begin);
      }
    }
  });
}

nb::object RecomputeMask(const PyPlan& self) {
  // std::vector<bool> has no memory of its own for each element.
  return PerToken<uint8_t>(self.plan, 0,
                           [&](std::vector<uint8_t>* mask) {
                             for (const BlendStep& step : self.plan.steps) {
                               if (step.loads) continue;
                               std::fill(mask->begin() + static_cast<ptrdiff_t>(step.begin),
                                         mask->begin() + static_cast<ptrdiff_t>(step.end),
                                         uint8_t{1});
                             }
                           })
      .attr("view")("bool");
}

std::vector<PlanChunk> Chunks(const PyPlan& self, uint64_t tokens) {
  if (tokens == 0) {
    throw StatusError(Status(StatusCode::kInvalidArgument, "tokens: chunks of none"));
  }
  std::vector<PlanChunk> chunks;
  for (uint64_t begin = 0; begin < self.plan.tokens; begin += tokens) {
    PlanChunk chunk{.begin = begin, .end = std::min(begin + tokens, self.plan.tokens)};
    uint64_t found = 0;
    bool exact = true, full = true;
    for (const BlendSegment& segment : self.plan.segments) {
      const uint64_t from = std::max(begin, segment.begin), to = std::min(chunk.end, segment.end);
      if (from >= to || segment.match == BlendMatch::kNone) continue;
      found += to - from;
      exact = exact && segment.match == BlendMatch::kPrefix;
      full = full && segment.match != BlendMatch::kPartial;
    }
    for (const BlendStep& step : self.plan.steps) {
      const uint64_t from = std::max(begin, step.begin), to = std::min(chunk.end, step.end);
      if (step.loads && from < to) chunk.loaded += to - from;
    }
    const bool all = found == chunk.end - chunk.begin;
    chunk.match = found == 0 ? BlendMatch::kNone
                  : !all     ? BlendMatch::kPartial
                  : exact    ? BlendMatch::kPrefix
                  : full     ? BlendMatch::kFull
                             : BlendMatch::kPartial;
    chunks.push_back(chunk);
  }
  return chunks;
}

PyComposed Compose(nb::handle self, const Model& model, const nb::list& documents,
                   const std::string& ns, nb::handle separator, nb::handle question, double lease,
                   const nb::dict& options, const std::string& defaults) {
  nb::cast<OpenStore&>(self).CheckModel(model);
  const Ids between(separator, "separator"), last(question, "question");
  ComposeRequest request;
  request.model = model.id;
  request.ns = ns;
  request.separator = between.span();
  request.question = last.span();
  request.lease_ns = DurationNs(lease, "lease");
  for (const nb::handle one : documents) {
    ComposeDocument document;
    const bool alone = nb::isinstance<nb::str>(one);
    document.name = nb::cast<std::string>(alone ? nb::borrow(one) : nb::object(one[0]));
    if (!alone) document.begin = nb::cast<uint64_t>(one[1]);
    document.is_beginning = document.name.ends_with('*');
    if (document.is_beginning) document.name.pop_back();
    request.documents.push_back(std::move(document));
  }
  const BlendOptions read = OptionsOf(options, defaults);
  Store& store = nb::cast<OpenStore&>(self).store();
  Composed composed = Take(Unlocked([&] { return store.Compose(request, read); }));
  PyPlan plan{.plan = std::move(composed.plan), .store = nb::borrow(self), .spec = model.spec};
  return {.tokens = NumpyIds(std::move(composed.tokens)),
          .plan = nb::cast(std::move(plan)),
          .spans = std::move(composed.spans),
          .documents = std::move(composed.documents)};
}

// ---------------------------------------------------------------- classes

template <typename Part>
std::string RangeText(const Part& part) {
  return "[" + std::to_string(part.begin) + ", " + std::to_string(part.end) + ")";
}

void BindParts(nb::module_& module) {
  nb::class_<BlendSegment>(module, "BlendSegment",
                           "Positions [begin, end) of a prompt, and where their KV is: from "
                           "position source on of the path\nthat ends with the node. match: "
                           "\"none\", \"prefix\", \"full\" or \"partial\".")
      .def_ro("begin", &BlendSegment::begin)
      .def_ro("end", &BlendSegment::end)
      .def_prop_ro("match",
                   [](const BlendSegment& self) { return std::string(BlendMatchName(self.match)); })
      .def_prop_ro("node",
                   [](const BlendSegment& self) { return static_cast<uint64_t>(self.node); })
      .def_ro("source", &BlendSegment::source)
      .def_prop_ro("shift", &BlendSegment::shift, "How far its keys are moved.")
      .def("__repr__", [](const BlendSegment& self) {
        return "BlendSegment(" + RangeText(self) + ", " + BlendMatchName(self.match) + ")";
      });
  nb::class_<BlendStep>(module, "BlendStep",
                        "Positions [begin, end) of a prompt that are loaded, if `loads`, or "
                        "computed.")
      .def_ro("loads", &BlendStep::loads)
      .def_ro("begin", &BlendStep::begin)
      .def_ro("end", &BlendStep::end)
      .def("__repr__", [](const BlendStep& self) {
        return std::string("BlendStep(") + (self.loads ? "load " : "compute ") + RangeText(self) +
               ")";
      });
  nb::class_<PlanChunk>(module, "BlendChunk",
                        "Positions [begin, end) of a prompt, what of it was found, and how many of "
                        "its tokens are loaded.")
      .def_ro("begin", &PlanChunk::begin)
      .def_ro("end", &PlanChunk::end)
      .def_prop_ro("match",
                   [](const PlanChunk& self) { return std::string(BlendMatchName(self.match)); })
      .def_ro("loaded", &PlanChunk::loaded)
      .def("__repr__", [](const PlanChunk& self) {
        return "BlendChunk(" + RangeText(self) + ", " + BlendMatchName(self.match) + ")";
      });
}

void BindPlan(nb::module_& module) {
  nb::class_<PyPlan> plan(module, "BlendPlan",
                          R"(What of a prompt is loaded from where, and what is computed.

steps are in order and cover the prompt: restore those that load, compute the others; at each the
cache holds all positions before it, so plain causal attention is right. exact: nothing before this
position is approximate. complete: everything that was appended before was looked at.
positions_checked: stored keys turn as the model says. position_mapping: for each token its
position in its source, -1 where there is none; recompute_mask: for each token whether it is
computed.)");
  const auto number = [&](const char* name, uint64_t BlendPlan::*member) {
    plan.def_prop_ro(name, [member](const PyPlan& self) { return self.plan.*member; });
  };
  number("tokens", &BlendPlan::tokens);
  number("exact", &BlendPlan::exact);
  number("load_tokens", &BlendPlan::load_tokens);
  number("compute_tokens", &BlendPlan::compute_tokens);
  number("load_bytes", &BlendPlan::load_bytes);
  plan.def_prop_ro("segments", [](const PyPlan& self) { return self.plan.segments; })
      .def_prop_ro("steps", [](const PyPlan& self) { return self.plan.steps; })
      .def_prop_ro("complete", [](const PyPlan& self) { return self.plan.complete; })
      .def_prop_ro("positions_checked",
                   [](const PyPlan& self) { return self.plan.positions_checked; })
      .def_prop_ro("position_mapping", &PositionMapping)
      .def_prop_ro("recompute_mask", &RecomputeMask)
      .def("chunks", &Chunks, "tokens"_a = 64,
           "The prompt in pieces of `tokens` tokens, each with what was found of it.")
      .def("__repr__", [](const PyPlan& self) {
        return "BlendPlan(tokens=" + std::to_string(self.plan.tokens) +
               ", load_tokens=" + std::to_string(self.plan.load_tokens) + ")";
      });
  plan.def(
      "restore", &Restore, "into"_a, nb::kw_only(), "begin"_a = 0, "end"_a = nb::none(),
      "timeout"_a = nb::none(), "progress"_a = nb::none(), "gpu_ready"_a = 0,
      "layer_events"_a = std::vector<uintptr_t>(), "fall_back_to_host"_a = false,
      nb::sig("def restore(self, into: KvView | KvBuffer, *, begin: int = 0, "
              "end: int | None = None, timeout: float | None = None, "
              "progress: LayerProgress | None = None, gpu_ready: int = 0, "
              "layer_events: collections.abc.Sequence[int] = (), "
              "fall_back_to_host: bool = False) -> RestoreResult"),
      "Brings what the plan loads of [begin, end), positions of the prompt, keys turned to "
      "where they stand\nnow; the rest of the view stays as it is. All or nothing. Conflict or "
      "NotFound when a source changed.");
  BindLease<PyPlan>(&plan, [](const PyPlan& self) { return self.plan.lease; });
}

void BindComposed(nb::module_& module) {
  nb::class_<ComposedDocument>(module, "ComposedDocument",
                               "Where a document stands in a prompt: positions [begin, end).")
      .def_ro("name", &ComposedDocument::name)
      .def_prop_ro(
          "branch", [](const ComposedDocument& self) { return static_cast<uint64_t>(self.branch); },
          "Its id.")
      .def_ro("begin", &ComposedDocument::begin)
      .def_ro("end", &ComposedDocument::end)
      .def("__repr__", [](const ComposedDocument& self) {
        return "ComposedDocument(" + self.name + ", " + RangeText(self) + ")";
      });
  nb::class_<PyComposed>(module, "Composed", "A prompt of documents, and its plan.")
      .def_prop_ro("tokens", [](const PyComposed& self) { return self.tokens; })
      .def_prop_ro(
          "plan", [](const PyComposed& self) { return self.plan; },
          nb::sig("def plan(self) -> BlendPlan"))
      .def_prop_ro("spans", [](const PyComposed& self) { return self.spans; })
      .def_prop_ro("documents", [](const PyComposed& self) { return self.documents; });
}

}  // namespace

void BindBlend(nb::class_<OpenStore>& store, nb::module_& module) {
  BindParts(module);
  BindPlan(module);
  BindComposed(module);
  module.def(
      "_check_blend_options",
      [](const nb::dict& options) { static_cast<void>(OptionsOf(options, "cairn")); }, "options"_a,
      nb::sig("def _check_blend_options(options: collections.abc.Mapping[str, typing.Any]) "
              "-> None"),
      "Raises InvalidArgument for a name that no option of plans has, or a value of another kind. "
      "Ranges are\nchecked by plan_blend.");
  store.def(
      "plan_blend", &Plan, "model"_a, "tokens"_a, nb::kw_only(), "namespace"_a = "",
      "also"_a = std::vector<std::string>(), "spans"_a = std::vector<ContentSpan>(),
      "lease"_a = 0.0, "memory_only"_a = false, "approximate"_a = false, "options"_a = nb::dict(),
      "defaults"_a = "cairn",
      nb::sig("def plan_blend(self, model: Model, tokens: typing.Any, *, namespace: str = '', "
              "also: collections.abc.Sequence[str] = (), "
              "spans: collections.abc.Sequence[ContentSpan] = (), lease: float = 0.0, "
              "memory_only: bool = False, approximate: bool = False, "
              "options: collections.abc.Mapping[str, typing.Any] = {}, defaults: str = 'cairn') "
              "-> BlendPlan"),
      R"(What of the tokens is loaded from where, at any position, and what is computed.

A namespace must index chunks (NamespacePolicy(index="chunks")), unless `sources` of the options
say which pieces to use. options: by their names here, in LMCache or in UCM (docs/blend.md);
separators are lists of ids, recompute pairs (begin, end), sources tuples (branch, begin, end, at).
defaults: "cairn", or the documented ones of "lmcache" or "ucm". lease: seconds for which all that
is loaded stays as it is; use the plan as a context manager, or release() it. Nothing found is no
error.)");
  store.def(
      "compose", &Compose, "model"_a, "documents"_a, nb::kw_only(), "namespace"_a = "",
      "separator"_a = nb::none(), "question"_a = nb::none(), "lease"_a = 0.0,
      "options"_a = nb::dict(), "defaults"_a = "cairn",
      nb::sig("def compose(self, model: Model, "
              "documents: list[str | tuple[str, int]], *, namespace: str = '', "
              "separator: typing.Any = None, question: typing.Any = None, lease: float = 0.0, "
              "options: collections.abc.Mapping[str, typing.Any] = {}, defaults: str = 'cairn') "
              "-> Composed"),
      R"(A prompt of named branches of a namespace, with their KV.

documents: names; NAME* is every branch whose name begins so; (name, begin) leaves out the tokens
before `begin`. separator: ids between two documents, and before the question. Nothing is searched.
NotFound names a document that does not exist.)");
}

}  // namespace cairn::python
