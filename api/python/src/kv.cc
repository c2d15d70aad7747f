// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/kv.h"

#include <algorithm>

#include "api/python/src/ids.h"
#include "api/python/src/model.h"

namespace cairn::python {

namespace {

struct KvTensors {
  std::shared_ptr<const GroupMemory> memory;
};

// One tensor, a list of them, or a list of lists such as one (K, V) a layer.
void ImportAll(nb::handle object, int depth, std::vector<Tensor>* tensors) {
  if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object)) {
    tensors->push_back(ImportTensor(object, "tensors[" + std::to_string(tensors->size()) + "]"));
    return;
  }
  // Avoids endless recursion into a list that contains itself.
  if (depth == 2) BadArgument("tensors: lists may be in a list, but no lists in those");
  for (const nb::handle item : object) ImportAll(item, depth + 1, tensors);
}

KvTensors MakeTensors(nb::handle model, nb::handle tensors, const std::string& layout,
                      const std::variant<uint32_t, std::string>& group, uint32_t layer_begin) {
  std::shared_ptr<const ModelSpec> spec = SpecOf(model);
  const uint32_t index = GroupIndex(*spec, group);
  std::vector<Tensor> imported;
  ImportAll(tensors, 0, &imported);
  return {MakeGroupMemory(std::move(spec), index, layer_begin, layout, std::move(imported))};
}

int64_t EntryAt(const Tensor& tensor, uint64_t i) {
  const std::byte* const at = tensor.data + static_cast<int64_t>(i) * tensor.strides[0];
  if (tensor.dtype == "i64") return *reinterpret_cast<const int64_t*>(at);
  if (tensor.dtype == "i32") return *reinterpret_cast<const int32_t*>(at);
  if (tensor.dtype == "u32") return *reinterpret_cast<const uint32_t*>(at);
  return static_cast<int64_t>(*reinterpret_cast<const uint64_t*>(at));
}

std::vector<int64_t> EntriesOf(nb::handle list, const char* name) {
  std::vector<int64_t> entries;
  for (const nb::handle item : list) {
    int64_t entry = 0;
    if (!WholeNumber(item, &entry)) {
      BadArgument(std::string(name) + "[" + std::to_string(entries.size()) +
                  "]: " + nb::repr(item).c_str() + " is no whole number");
    }
    entries.push_back(entry);
  }
  return entries;
}

// A table of blocks or of slots: a list of numbers, or an array of them.
BlockTable MakeTable(nb::handle object, TableKind kind, const char* name, const GroupMemory& memory,
                     ViewPart* part) {
  BlockTable table{.kind = kind};
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    part->table = EntriesOf(object, name);
  } else {
    Tensor tensor = ImportTensor(object, name);
    const bool known = tensor.dtype == "i32" || tensor.dtype == "i64" || tensor.dtype == "u32" ||
                       tensor.dtype == "u64";
    if (tensor.shape.size() != 1 || !known) {
      BadArgument(std::string(name) + ": must be one row of whole numbers; it is " +
                  ShapeText(tensor.shape) + " of " + tensor.dtype);
    }
    table.count = static_cast<uint64_t>(tensor.shape[0]);
    if (tensor.memory == MemoryKind::kCuda) {
      if (!tensor.DenseFrom(0)) BadArgument(std::string(name) + ": is not contiguous");
      if (memory.memory != MemoryKind::kCuda || memory.device != tensor.device) {
        BadArgument(std::string(name) + ": is in the memory of device " +
                    std::to_string(tensor.device) + ", and the tensors are not");
      }
      table.entries = tensor.data;
      table.on_device = true;
      table.is_64_bit = tensor.item_bytes() == 8;
      part->table_tensor = std::move(tensor);
      return table;
    }
    for (uint64_t i = 0; i < table.count; ++i) part->table.push_back(EntryAt(tensor, i));
  }
  table.entries = part->table.data();
  table.count = part->table.size();
  table.is_64_bit = true;
  return table;
}

struct ViewArguments {
  uint64_t position = 0;
  std::optional<uint64_t> count;
  uint64_t first_token = 0;
  nb::handle table, slots;
  std::optional<uint64_t> table_position;
};

// Without a table: rows that follow each other from first_token on.
void PlaceInARow(const ViewArguments& arguments, const GroupMemory& memory, ViewPart* part,
                 GroupView* view) {
  const uint64_t there = memory.tokens();
  if (arguments.first_token > there || view->count > there - arguments.first_token) {
    BadArgument("count: tokens [" + std::to_string(arguments.first_token) + ", " +
                std::to_string(arguments.first_token) + " + " + std::to_string(view->count) +
                ") of tensors that have " + std::to_string(there));
  }
  if (memory.blocks != 0 && arguments.first_token % memory.tokens_per_block != 0) {
    BadArgument("first_token: " + std::to_string(arguments.first_token) +
                " is no multiple of the " + std::to_string(memory.tokens_per_block) +
                " tokens of a block");
  }
  view->tokens_per_block = memory.blocks == 0 ? 0 : static_cast<uint32_t>(memory.tokens_per_block);
  view->blocks =
      memory.blocks == 0 ? 0 : memory.blocks - arguments.first_token / memory.tokens_per_block;
  if (arguments.first_token == 0) return;
  for (size_t plane = 0; plane < part->bases.size(); ++plane) {
    const PlaneView& strides = memory.planes[plane];
    const int64_t offset =
        memory.blocks == 0 ? static_cast<int64_t>(arguments.first_token) * strides.token_stride
                           : static_cast<int64_t>(arguments.first_token / memory.tokens_per_block) *
                                 strides.block_stride;
    for (std::byte*& base : part->bases[plane]) base += offset;
  }
}

Kv MakeView(const KvTensors& tensors, const ViewArguments& arguments) {
  const GroupMemory& memory = *tensors.memory;
  auto part = std::make_shared<ViewPart>();
  part->memory = tensors.memory;
  part->bases = memory.bases;
  GroupView group{
      .group = memory.group, .layer_begin = memory.layer_begin, .position = arguments.position};
  const bool blocks = !arguments.table.is_none();
  if (blocks && !arguments.slots.is_none()) BadArgument("slots: is given, and table is");
  if (blocks || !arguments.slots.is_none()) {
    if (arguments.first_token != 0) BadArgument("first_token: is given, and a table is");
    if (blocks && memory.blocks == 0) BadArgument("table: the tensors have no blocks");
    group.table = blocks
                      ? MakeTable(arguments.table, TableKind::kBlocks, "table", memory, part.get())
                      : MakeTable(arguments.slots, TableKind::kSlots, "slots", memory, part.get());
    group.table.table_position = arguments.table_position.value_or(arguments.position);
    // Without blocks slots are places in a single block, which bounds them.
    group.tokens_per_block = static_cast<uint32_t>(memory.tokens_per_block);
    group.blocks = memory.blocks == 0 ? 1 : memory.blocks;
    const uint64_t before = arguments.position - group.table.table_position;
    const uint64_t room = group.table.count * (blocks ? memory.tokens_per_block : 1);
    group.count = arguments.count.value_or(before <= room ? room - before : 0);
  } else {
    const uint64_t there = memory.tokens();
    group.count = arguments.count.value_or(there - std::min(there, arguments.first_token));
    PlaceInARow(arguments, memory, part.get(), &group);
  }
  part->planes = memory.planes;
  for (size_t i = 0; i < part->planes.size(); ++i) part->planes[i].layer_bases = part->bases[i];
  group.planes = part->planes;
  const std::vector<GroupView> groups = {group};
  return {KvView{.groups = groups, .memory = memory.memory, .device = memory.device}, memory.spec,
          part, memory.writable};
}

void BindTensors(nb::module_& module) {
  nb::class_<KvTensors>(module, "KvTensors",
                        R"(The tensors that an engine has for one layer group, and how they lie.

model: a Model or ModelSpec. tensors: one array, or a list of them, or a list of lists such as one
(K, V) a layer; of numpy, torch or whatever speaks DLPack, in host or CUDA memory. Nothing is
copied: they are kept alive, and read or written where they are. Any strides will do.

layout: the order of the dimensions of each tensor; B is a block, T a token (of its block), H a
head, R the elements of a row, L a layer, P a plane:
  one tensor a layer and plane   "token_major" [B?][T][H][R], "head_major" [B?][H][T][R],
                                 "llama_cpp" [T][H][R], but values [H][R][T]
  one tensor a layer             "vllm_nhd" [P][B][T][H][R], "vllm_hnd" [P][B][H][T][R],
                                 "flashinfer_nhd" [B][P][T][H][R], "flashinfer_hnd" [B][P][H][T][R]
  any other                      its letters, such as "LPTHR" (one tensor of all layers and planes),
                                 "BTR" (a latent cache), "BR" (a state in each block)
group: of the model, by number or name. layer_begin: the first layer that there are tensors of.

bf16 may come as torch.bfloat16, ml_dtypes.bfloat16 or numbers of 16 bits; 8-bit floats likewise.
Raises InvalidArgument naming tensor, plane and dimension. Any thread may use it.)")
      .def(
          "__init__",
          [](KvTensors* self, nb::handle model, nb::handle tensors, const std::string& layout,
             const std::variant<uint32_t, std::string>& group, uint32_t layer_begin) {
            new (self) KvTensors(MakeTensors(model, tensors, layout, group, layer_begin));
          },
          "model"_a, "tensors"_a, "layout"_a = "token_major", nb::kw_only(), "group"_a = 0,
          "layer_begin"_a = 0)
      .def(
          "view",
          [](const KvTensors& self, uint64_t position, std::optional<uint64_t> count,
             uint64_t first_token, nb::handle table, nb::handle slots,
             std::optional<uint64_t> table_position) {
            return MakeView(self, {.position = position,
                                   .count = count,
                                   .first_token = first_token,
                                   .table = table,
                                   .slots = slots,
                                   .table_position = table_position});
          },
          "position"_a = 0, "count"_a = nb::none(), nb::kw_only(), "first_token"_a = 0,
          "table"_a = nb::none(), "slots"_a = nb::none(), "table_position"_a = nb::none(),
          R"(Positions [position, position + count) of the branch, as a KvView.

Without a table they follow each other in the tensors from token first_token on (a multiple of a
block's tokens where there are blocks). table: the numbers of the blocks that hold them, the first
one's first token being table_position (by default `position`); slots: a place of its own for each
token. Either is a list or an array of whole numbers, which is copied, or a tensor in CUDA memory,
which is kept. count: by default all that is left.)")
      .def_prop_ro("group", [](const KvTensors& self) { return self.memory->group; })
      .def_prop_ro("layout", [](const KvTensors& self) { return self.memory->layout; })
      .def_prop_ro("layers", [](const KvTensors& self) { return self.memory->layers; })
      .def_prop_ro(
          "blocks", [](const KvTensors& self) { return self.memory->blocks; },
          "0: the tensors have no blocks.")
      .def_prop_ro(
          "tokens_per_block", [](const KvTensors& self) { return self.memory->tokens_per_block; },
          "Without blocks: tokens in all.")
      .def_prop_ro(
          "device",
          [](const KvTensors& self) {
            return self.memory->memory == MemoryKind::kHost
                       ? std::string("cpu")
                       : "cuda:" + std::to_string(self.memory->device);
          },
          "\"cpu\" or \"cuda:0\".")
      .def_prop_ro("writable", [](const KvTensors& self) { return self.memory->writable; });
}

void BindViews(nb::module_& module) {
  nb::class_<Kv>(module, "KvView", R"(Some positions of tensors, for one call or many.

Keeps its tensors alive. `a + b` is a view of both: of several layer groups.)")
      .def_static(
          "of",
          [](nb::handle model, nb::handle tensors, const std::string& layout,
             const std::variant<uint32_t, std::string>& group, uint64_t position,
             std::optional<uint64_t> count, uint64_t first_token, nb::handle table,
             nb::handle slots) {
            return MakeView(MakeTensors(model, tensors, layout, group, 0),
                            {.position = position,
                             .count = count,
                             .first_token = first_token,
                             .table = table,
                             .slots = slots,
                             .table_position = {}});
          },
          "model"_a, "tensors"_a, "layout"_a = "token_major", nb::kw_only(), "group"_a = 0,
          "position"_a = 0, "count"_a = nb::none(), "first_token"_a = 0, "table"_a = nb::none(),
          "slots"_a = nb::none(), "KvTensors and its view in one step.")
      .def("__add__", &Kv::Join, nb::is_operator())
      .def_prop_ro(
          "groups",
          [](const Kv& self) {
            std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> groups;
            for (const GroupView& group : self.view().groups) {
              groups.emplace_back(group.group, group.position, group.position + group.count);
            }
            return groups;
          },
          "(group, begin, end) of each: the positions that the view describes.")
      .def_prop_ro("writable", &Kv::writable);
}

}  // namespace

void BindKv(nb::module_& module) {
  BindTensors(module);
  BindViews(module);
  BindBuffer(module);
}

}  // namespace cairn::python
