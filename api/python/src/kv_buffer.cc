// SPDX-License-Identifier: Apache-2.0
#include "cairn/kv_buffer.h"

#include "api/python/src/dtypes.h"
#include "api/python/src/kv.h"
#include "api/python/src/model.h"

namespace cairn::python {

namespace {

// KvBuffer of C++, which its views keep alive.
struct Buffer {
  std::shared_ptr<KvBuffer> buffer;
  std::shared_ptr<const ModelSpec> spec;
  Kv all;
  bool operator==(const Buffer& other) const {
    return Unlocked([&] { return *buffer == *other.buffer; });
  }
};

std::shared_ptr<KvBuffer> NewBuffer(const ModelSpec& spec, uint64_t tokens) {
  // Checked before anything is multiplied: no memory has this many bytes.
  const uint64_t token_bytes = spec.token_bytes();
  if (token_bytes != 0 && tokens > static_cast<uint64_t>(INT64_MAX) / token_bytes) {
    BadArgument("tokens: " + std::to_string(tokens) + " of " + std::to_string(token_bytes) +
                " bytes are more than can be addressed");
  }
  // GiBs of zeros take a while.
  return Unlocked([&] { return std::make_shared<KvBuffer>(spec, tokens); });
}

// The rows of a buffer: [heads][positions][elements].
struct Rows {
  std::byte* data;
  size_t shape[3];
  Dtype dtype;
};
Rows RowsOf(Buffer& self, uint32_t layer, const std::variant<uint32_t, std::string>& plane,
            const std::variant<uint32_t, std::string>& group) {
  const uint32_t index = GroupIndex(*self.spec, group);
  if (index >= self.spec->groups.size()) BadArgument("group: the model has no such group");
  const LayerGroup& of = self.spec->groups[index];
  size_t at = of.planes.size();
  if (const auto* const number = std::get_if<uint32_t>(&plane)) {
    at = *number;
  } else {
    for (size_t i = 0; i < of.planes.size(); ++i) {
      if (of.planes[i].name == std::get<std::string>(plane)) at = i;
    }
  }
  if (at >= of.planes.size()) BadArgument("plane: group '" + of.name + "' has no such plane");
  if (layer >= of.layers) BadArgument("layer: group '" + of.name + "' has no such layer");
  for (const GroupView& view : self.buffer->view()->groups) {
    if (view.group != index) continue;
    const Plane& what = of.planes[at];
    return {view.planes[at].layer_bases[layer],
            {what.heads, static_cast<size_t>(view.count), what.row_bytes / DtypeBytes(what.dtype)},
            what.dtype};
  }
  BadArgument("group: the buffer has no rows of group '" + of.name + "'");
}

}  // namespace

const KvView* ViewOf(nb::handle kv, const ModelSpec* model, const char* name, bool to_write) {
  if (kv.is_none()) return nullptr;
  const Kv* view = nullptr;
  if (nb::isinstance<Kv>(kv)) {
    view = &nb::cast<const Kv&>(kv);
  } else if (nb::isinstance<Buffer>(kv)) {
    view = &nb::cast<const Buffer&>(kv).all;
  } else {
    BadArgument(std::string(name) + ": neither a KvView nor a KvBuffer");
  }
  view->CheckModel(*model, name);
  if (to_write && !view->writable()) {
    BadArgument(std::string(name) + ": a tensor of it is read only");
  }
  return &view->view();
}

void BindBuffer(nb::module_& module) {
  nb::class_<Buffer>(module, "KvBuffer",
                     R"(Host memory for what a branch of `tokens` tokens has of a model.

All zeros at first; of a recurrent state the row after all tokens, of an encoder's output row 0.
Goes wherever a KvView does, and is then all of it.)")
      .def(
          "__init__",
          [](Buffer* self, nb::handle model, uint64_t tokens) {
            std::shared_ptr<const ModelSpec> spec = SpecOf(model);
            Check(spec->Validate());
            auto buffer = NewBuffer(*spec, tokens);
            Kv all(*buffer->view(), spec, buffer, true);
            new (self)
                Buffer{.buffer = std::move(buffer), .spec = std::move(spec), .all = std::move(all)};
          },
          "model"_a, "tokens"_a)
      .def_prop_ro("tokens", [](const Buffer& self) { return self.buffer->tokens(); })
      .def_prop_ro(
          "bytes",
          [](nb::handle self) {
            auto& buffer = nb::cast<Buffer&>(self);
            const size_t size = buffer.buffer->bytes().size();
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(buffer.buffer->bytes().data(),
                                                                {size}, self);
          },
          nb::sig("def bytes(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "All of it, as a numpy array that shares the memory:\n"
          "[group][layer][plane][head][position][row].")
      .def(
          "view",
          [](const Buffer& self, uint64_t begin, std::optional<uint64_t> end) {
            const uint64_t last = end.value_or(self.buffer->tokens());
            if (begin > last || last > self.buffer->tokens()) {
              BadArgument("begin, end: positions [" + std::to_string(begin) + ", " +
                          std::to_string(last) + ") of a buffer of " +
                          std::to_string(self.buffer->tokens()));
            }
            struct Both {
              std::shared_ptr<KvBuffer> buffer;
              OwnedKvView view;
            };
            auto both = std::make_shared<Both>(
                Both{.buffer = self.buffer, .view = self.buffer->View(begin, last)});
            const KvView& view = *both->view.view();
            return Kv(view, self.spec, std::move(both), true);
          },
          "begin"_a = 0, "end"_a = nb::none(), "The rows of positions [begin, end).")
      .def(
          "numpy",
          [](nb::handle self, uint32_t layer, const std::variant<uint32_t, std::string>& plane,
             const std::variant<uint32_t, std::string>& group) {
            const Rows rows = RowsOf(nb::cast<Buffer&>(self), layer, plane, group);
            return nb::cast(nb::ndarray<nb::numpy>(rows.data, 3, rows.shape, self, nullptr,
                                                   NumpyDtype(rows.dtype)));
          },
          "layer"_a, "plane"_a, "group"_a = 0,
          nb::sig("def numpy(self, layer: int, plane: int | str, group: int | str = 0) -> "
                  "numpy.typing.NDArray[typing.Any]"),
          "The rows of one layer and plane, [head][position][element], sharing the memory; bf16\n"
          "comes as uint16, 8-bit floats as uint8.")
      .def(
          "tensor",
          [](nb::handle self, uint32_t layer, const std::variant<uint32_t, std::string>& plane,
             const std::variant<uint32_t, std::string>& group) {
            const Rows rows = RowsOf(nb::cast<Buffer&>(self), layer, plane, group);
            return nb::cast(nb::ndarray<nb::array_api>(rows.data, 3, rows.shape, self, nullptr,
                                                       DlpackDtype(rows.dtype)));
          },
          "layer"_a, "plane"_a, "group"_a = 0,
          nb::sig(
              "def tensor(self, layer: int, plane: int | str, group: int | str = 0) -> typing.Any"),
          "The same for torch.from_dlpack, with its real dtype.")
      .def(ByValue());
}

}  // namespace cairn::python
