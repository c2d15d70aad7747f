// SPDX-License-Identifier: Apache-2.0
//
// Rotary position encoding: descriptions, frequencies, and keys at other positions.
#include "cairn/rotary.h"

#include <string>

#include "api/python/src/common.h"
#include "api/python/src/names.h"
#include "api/python/src/tensor.h"
#include "base/core/text.h"
#include "cairn/model.h"

namespace cairn::python {

namespace {

void BindSpec(nb::module_& module) {
  nb::class_<RotarySpec>(module, "RotarySpec", R"(How the rows of a plane are rotated.

state: "unset", "none", "applied" (what is stored is rotated) or "before". pairing: "unset",
"halves" (element i turns with i + width/2: Hugging Face, vLLM, SGLang) or "adjacent" (2i with
2i + 1: llama.cpp). first, width: the elements of a row that are rotated; width 0: not said.
sections: pairs that turn by each position of a token (M-RoPE).)")
      .def(
          "__init__",
          [](RotarySpec* self, std::string_view state, std::string_view pairing, uint32_t first,
             uint32_t width, std::vector<uint32_t> sections, bool interleaved) {
            new (self) RotarySpec{.state = Parse<RotaryState>(state, "state"),
                                  .pairing = Parse<RotaryPairing>(pairing, "pairing"),
                                  .first = first,
                                  .width = width,
                                  .sections = std::move(sections),
                                  .interleaved = interleaved};
          },
          "state"_a = "unset", "pairing"_a = "unset", nb::kw_only(), "first"_a = 0, "width"_a = 0,
          "sections"_a = std::vector<uint32_t>(), "interleaved"_a = false)
      .def_prop_ro("state", [](const RotarySpec& self) { return Word(self.state); })
      .def_prop_ro("pairing", [](const RotarySpec& self) { return Word(self.pairing); })
      .def_ro("first", &RotarySpec::first)
      .def_ro("width", &RotarySpec::width)
      .def_ro("sections", &RotarySpec::sections)
      .def_ro("interleaved", &RotarySpec::interleaved)
      .def(ByValue());
}

void BindFrequencies(nb::module_& module) {
  module.def("rotary_frequencies", &RotaryFrequencies, "width"_a, "theta"_a,
             "theta^(-2i / width) for i in [0, width / 2): rotary frequencies without scaling.");
  module.def("linear_frequencies", &LinearFrequencies, "inv_freq"_a, "factor"_a,
             "All divided by the factor.");
  module.def(
      "llama3_frequencies",
      [](std::vector<float> inv_freq, double factor, double low, double high, uint32_t original) {
        return Llama3Frequencies(std::move(inv_freq), {.factor = factor,
                                                       .low_freq_factor = low,
                                                       .high_freq_factor = high,
                                                       .original_positions = original});
      },
      "inv_freq"_a, nb::kw_only(), "factor"_a = 8.0, "low_freq_factor"_a = 1.0,
      "high_freq_factor"_a = 4.0, "original_positions"_a = 8192,
      "The scaling of Llama 3.1 and later.");
  module.def(
      "yarn_frequencies",
      [](uint32_t width, double theta, double factor, uint32_t original, double fast, double slow) {
        return YarnFrequencies(width, theta,
                               {.factor = factor,
                                .original_positions = original,
                                .beta_fast = fast,
                                .beta_slow = slow});
      },
      "width"_a, "theta"_a, nb::kw_only(), "factor"_a, "original_positions"_a, "beta_fast"_a = 32.0,
      "beta_slow"_a = 1.0, "Rotary frequencies scaled by YaRN.");
  module.def("yarn_mscale", &YarnMscale, "factor"_a, "coefficient"_a = 1.0,
             "The factor that YaRN applies to cosine and sine (LayerGroup.mscale).");
  module.def(
      "long_rope_frequencies",
      [](uint32_t width, double theta, std::vector<double> short_factors,
         std::vector<double> long_factors, uint32_t original, uint64_t context) {
        const auto& factors = context > original ? long_factors : short_factors;
        if (factors.size() != width / 2) {
          BadArgument(std::string(context > original ? "long" : "short") +
                      "_factors: " + std::to_string(factors.size()) + " numbers, not " +
                      std::to_string(width / 2) + ", half the width");
        }
        return LongRopeFrequencies(width, theta,
                                   {.short_factors = std::move(short_factors),
                                    .long_factors = std::move(long_factors),
                                    .original_positions = original,
                                    .context_positions = context});
      },
      "width"_a, "theta"_a, nb::kw_only(), "short_factors"_a, "long_factors"_a,
      "original_positions"_a, "context_positions"_a,
      R"(Rotary frequencies scaled by LongRoPE.

Divided by long_factors where the engine's context length, context_positions, is beyond
original_positions, else by short_factors: width / 2 numbers each.)");
  module.def("long_rope_mscale", &LongRopeMscale, "factor"_a, "original_positions"_a,
             "The factor that LongRoPE applies to cosine and sine (LayerGroup.mscale).");
}

// Positions of tokens as Python gives them: whole numbers from 0 on, [tokens] or, with sections,
// [tokens, sections].
std::vector<uint64_t> Positions(nb::handle object, const char* name, uint32_t sections,
                                int64_t tokens) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object array = numpy.attr("asarray")(object);
  const nb::object dtype = array.attr("dtype");
  const auto kind = nb::cast<std::string_view>(dtype.attr("kind"));
  const bool none = nb::cast<int64_t>(array.attr("size")) == 0;
  if (!none && kind != "i" && kind != "u") {
    BadArgument(std::string(name) + ": " + nb::str(dtype).c_str() + " are no whole numbers");
  }
  if (!none && nb::cast<int64_t>(nb::int_(array.attr("min")() < nb::int_(0))) != 0) {
    BadArgument(std::string(name) + ": a position is negative");
  }
  array = numpy.attr("ascontiguousarray")(array, "dtype"_a = "uint64");
  const Tensor tensor = ImportTensor(array, name);
  std::vector<int64_t> shape = {tokens};
  if (sections != 0) shape.push_back(sections);
  if (tensor.shape != shape) {
    BadArgument(std::string(name) + ": has the shape " + ShapeText(tensor.shape) + ", not " +
                ShapeText(shape));
  }
  const auto* const first = reinterpret_cast<const uint64_t*>(tensor.data);
  return std::vector<uint64_t>(first, first + tensor.array.size());
}

size_t PlaneNumber(const LayerGroup& group, const std::variant<size_t, std::string_view>& plane) {
  if (const size_t* number = std::get_if<size_t>(&plane)) return *number;
  const std::string_view name = std::get<std::string_view>(plane);
  for (size_t i = 0; i < group.planes.size(); ++i) {
    if (group.planes[i].name == name) return i;
  }
  BadArgument("plane: the group has none of the name " + Quoted(name));
}

// Keys as an array: [layers, tokens, heads, elements], or without the first dimension, or without
// that of heads as well, where a plane has one.
class Keys {
 public:
  Keys(nb::handle object, const char* name, const Plane& plane)
      : tensor_(ImportTensor(object, name)), name_(name) {
    if (tensor_.memory != MemoryKind::kHost) Refuse("must be in host memory");
    const std::string wanted = Word(plane.dtype);
    const bool bits =
        DtypeBytes(plane.dtype) == 2 && (tensor_.dtype == "u16" || tensor_.dtype == "i16");
    if (tensor_.dtype != wanted && !bits) {
      Refuse("is " + tensor_.dtype + ", and plane " + Quoted(plane.name) + " is " + wanted);
    }
    shape_ = tensor_.shape;
    strides_ = tensor_.strides;
    if (shape_.size() == 2 && plane.heads == 1) Insert(1);
    if (shape_.size() == 3) Insert(0);
    const auto elements = int64_t{plane.row_bytes} / tensor_.item_bytes();
    if (shape_.size() != 4 || shape_[2] != int64_t{plane.heads} || shape_[3] != elements) {
      Refuse("has the shape " + ShapeText(tensor_.shape) + "; wanted are [tokens, " +
             std::to_string(plane.heads) + ", " + std::to_string(elements) +
             "], or layers before that");
    }
    for (size_t i = 0; i < 4; ++i) {
      if (shape_[i] > 1 && strides_[i] <= 0) Refuse("has strides that are not positive");
    }
  }
  const std::vector<int64_t>& shape() const { return shape_; }
  bool writable() const { return tensor_.writable; }
  std::span<std::byte> bytes() const {
    int64_t last = 0;
    for (size_t i = 0; i < 4; ++i) {
      if (shape_[i] == 0) return {};
      last += (shape_[i] - 1) * strides_[i];
    }
    return {tensor_.data, static_cast<size_t>(last) + tensor_.item_bytes()};
  }
  KeyStrides strides() const {
    const auto of = [&](size_t i) {
      return shape_[i] > 1 ? static_cast<uint64_t>(strides_[i]) : 0;
    };
    return {.layer = of(0), .token = of(1), .head = of(2), .element = of(3)};
  }
  [[noreturn]] void Refuse(const std::string& what) const { BadArgument(name_ + ": " + what); }

 private:
  void Insert(int64_t at) {
    shape_.insert(shape_.begin() + at, 1);
    strides_.insert(strides_.begin() + at, 0);
  }

  Tensor tensor_;
  std::string name_;
  std::vector<int64_t> shape_, strides_;  // Of four dimensions.
};

void Rotate(const LayerGroup& group, nb::handle keys, nb::handle from, nb::handle to,
            const std::variant<size_t, std::string_view>& which, nb::handle out) {
  const size_t number = PlaneNumber(group, which);
  if (number >= group.planes.size()) {
    BadArgument("plane: " + std::to_string(number) + "; the group has " +
                std::to_string(group.planes.size()));
  }
  const Plane& plane = group.planes[number];
  const Keys rows(keys, "keys", plane);
  const Keys into(out.is_none() ? keys : out, out.is_none() ? "keys" : "out", plane);
  if (!into.writable()) into.Refuse("is read only");
  if (into.shape() != rows.shape()) {
    into.Refuse("has the shape " + ShapeText(into.shape()) + ", and keys " +
                ShapeText(rows.shape()));
  }
  const auto sections = static_cast<uint32_t>(plane.rotary.sections.size());
  const int64_t tokens = rows.shape()[1];
  std::vector<uint64_t> from_positions;
  if (!from.is_none()) from_positions = Positions(from, "from_positions", sections, tokens);
  const std::vector<uint64_t> to_positions = Positions(to, "to_positions", sections, tokens);
  const KeyRotation rotation = {.plane = number,
                                .layers = static_cast<uint32_t>(rows.shape()[0]),
                                .from = from_positions,
                                .to = to_positions,
                                .rows = rows.bytes(),
                                .into = into.bytes(),
                                .row_strides = rows.strides(),
                                .into_strides = into.strides()};
  Check(Unlocked([&] { return RotateKeys(group, rotation); }));
}

}  // namespace

void BindRotary(nb::module_& module) {
  BindSpec(module);
  BindFrequencies(module);
}

void BindRotateKeys(nb::module_& module) {
  module.def("rotate_keys", &Rotate, "group"_a, "keys"_a, "from_positions"_a.none(),
             "to_positions"_a, nb::kw_only(), "plane"_a = size_t{0}, "out"_a = nb::none(),
             R"(Turns keys that were rotated at some positions to others.

keys: an array in host memory of the plane's dtype (bf16 also as 16-bit numbers), [tokens, heads,
elements], or [layers, tokens, heads, elements], with any positive strides. from_positions,
to_positions: one a token; where the plane has sections [tokens, sections]. Keys that are stored
before rotation (rotary.state "before") have no from_positions, None, and become what the engine
computes at to_positions. plane: its number or name. out: where the result goes, an array of the
same shape; by default into keys themselves.

What is written differs from a turn without rounding by a relative error of 2**-11 (f16), 2**-8
(bf16) or 2**-24 (f32), and 2**-22 more, however far. Errors of repeated turns add up: always turn
the row that was stored first. Raises InvalidArgument, by the field, and writes nothing.)");
}

}  // namespace cairn::python
