// SPDX-License-Identifier: Apache-2.0
#include <cairn/kv_buffer.h>
#include <cairn/store.h>

int main() {  // A toy model: 2 layers, 2 KV heads, rows of 4 bf16 elements.
  const auto spec = cairn::ModelSpec::FullAttention("toy", 2, 2, 4, cairn::Dtype::kBf16);
  auto store = cairn::Store::Open("example.store", {.create_if_missing = true}).value();
  auto chat = store.CreateBranch(store.RegisterModel(spec).value()).value();
  const std::vector<cairn::TokenId> tokens = {11, 12, 13};
  cairn::KvBuffer kv(spec, 3), back(spec, 3);
  kv.Row(0, 1, 0, 1, 2)[0] = std::byte{7};  // Group 0, layer 1, plane K, head 1, position 2.
  chat.AppendSync({.tokens = tokens, .kv = kv.view()}).value();  // There after SIGKILL.
  auto twin = chat.ForkAt(2).value();           // Shares the first two tokens; copies nothing.
  chat.Restore({.into = back.view()}).value();  // Or into an engine's paged blocks, on a GPU.
  return back == kv && twin.length().value() == 2 ? 0 : 1;
}
