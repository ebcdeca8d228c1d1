// SPDX-License-Identifier: BSD-3-Clause
#include "model/products.hpp"

#include <dlfcn.h>

#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "model/kernels.hpp"

namespace trainer {

namespace {

struct Form {
  Product product;
  bool bias;
  bool operator==(const Form&) const = default;
};

struct FormHash {
  std::size_t operator()(const Form& form) const {
    const Product& p = form.product;
    std::size_t hash = form.bias;
    for (Index value : {p.m, p.n, p.k, p.a.row, p.a.column, p.b.row, p.b.column, p.c.row, p.outer, p.inner,
                        Index{p.accumulate}, Index{p.gelu}})
      hash = hash * 1099511628211U ^ static_cast<std::size_t>(value);
    return hash;
  }
};

dnnl::memory::desc describe(const Product& p, Index rows, Index columns, const Strides& strides,
                            dnnl::memory::data_type type) {
  if (p.outer == 1 && p.inner == 1) return {{rows, columns}, type, {strides.row, strides.column}};
  return {
      {p.outer, p.inner, rows, columns}, type, {strides.outer, strides.inner, strides.row, strides.column}};
}

struct Kernel {
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, c;
  std::unordered_map<int, dnnl::memory> arguments;
};

// Elements from the first to the last that a strided batch of matrices touches.
Index extent(const Product& p, Index rows, Index columns, const Strides& s) {
  return (p.outer - 1) * s.outer + (p.inner - 1) * s.inner + (rows - 1) * s.row + (columns - 1) * s.column +
         1;
}

// A rank is a core. oneDNN runs on whatever OpenMP it was built with, which asks the calling thread's
// setting; a oneDNN built without OpenMP has none to ask.
void compute_in_this_thread_alone() {
  auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

}  // namespace

struct Products::Engine {
  dnnl::memory::data_type type;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Form, Kernel, FormHash> kernels;
  std::vector<float> a, b, c, bias;  // copies of fp16 operands

  Kernel make(const Form& form) {
    const Product& p = form.product;
    auto a_desc = describe(p, p.m, p.k, p.a, type), b_desc = describe(p, p.k, p.n, p.b, type),
         c_desc = describe(p, p.m, p.n, p.c, type);
    dnnl::primitive_attr attributes;
    dnnl::post_ops after;
    if (p.accumulate) after.append_sum();
    if (p.gelu) after.append_eltwise(1.0F, dnnl::algorithm::eltwise_gelu_tanh, 0.0F, 0.0F);
    attributes.set_post_ops(after);
    dnnl::memory::desc bias_desc;
    if (form.bias) bias_desc = {{1, p.n}, type, dnnl::memory::dims{p.n, 1}};
    dnnl::matmul::desc operation = form.bias ? dnnl::matmul::desc(a_desc, b_desc, bias_desc, c_desc)
                                             : dnnl::matmul::desc(a_desc, b_desc, c_desc);
    dnnl::matmul::primitive_desc details(operation, attributes, engine);
    Kernel kernel{dnnl::matmul(details),
                  dnnl::memory(a_desc, engine, DNNL_MEMORY_NONE),
                  dnnl::memory(b_desc, engine, DNNL_MEMORY_NONE),
                  form.bias ? dnnl::memory(bias_desc, engine, DNNL_MEMORY_NONE) : dnnl::memory(),
                  dnnl::memory(c_desc, engine, DNNL_MEMORY_NONE),
                  {}};
    kernel.arguments = {{DNNL_ARG_SRC, kernel.a}, {DNNL_ARG_WEIGHTS, kernel.b}, {DNNL_ARG_DST, kernel.c}};
    if (form.bias) kernel.arguments.emplace(DNNL_ARG_BIAS, kernel.bias);
    return kernel;
  }

  void run(const Product& p, const void* a_data, const void* b_data, void* c_data, const void* bias_data) {
    Form form{p, bias_data != nullptr};
    auto found = kernels.find(form);
    if (found == kernels.end()) found = kernels.emplace(form, make(form)).first;
    Kernel& kernel = found->second;
    kernel.a.set_data_handle(const_cast<void*>(a_data));
    kernel.b.set_data_handle(const_cast<void*>(b_data));
    kernel.c.set_data_handle(c_data);
    if (bias_data != nullptr) kernel.bias.set_data_handle(const_cast<void*>(bias_data));
    kernel.primitive.execute(stream, kernel.arguments);
  }
};

Products::Products(Type type) : type_(type), engine_(std::make_unique<Engine>()) {
  compute_in_this_thread_alone();
  engine_->type = type == Type::Bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

Products::~Products() = default;

void Products::multiply(const Product& product, const void* a, const void* b, void* c, const void* bias) {
  if (type_ == Type::Float16)
    by_float(product, a, b, c, bias);
  else
    engine_->run(product, a, b, c, bias);
}

void Products::by_float(const Product& p, const void* a, const void* b, void* c, const void* bias) {
  auto widened = [](std::vector<float>& copy, const void* from, Index count) {
    copy.resize(static_cast<std::size_t>(count));
    convert(Type::Float16, from, Type::Float32, copy.data(), count);
    return copy.data();
  };
  const float* a_copy = widened(engine_->a, a, extent(p, p.m, p.k, p.a));
  const float* b_copy = widened(engine_->b, b, extent(p, p.k, p.n, p.b));
  // What lies between the rows of c comes back as it was: fp16 to float and back is exact.
  Index c_extent = extent(p, p.m, p.n, p.c);
  float* c_copy = widened(engine_->c, c, c_extent);
  const float* bias_copy = bias == nullptr ? nullptr : widened(engine_->bias, bias, p.n);
  engine_->run(p, a_copy, b_copy, c_copy, bias_copy);
  convert(Type::Float32, c_copy, Type::Float16, c, c_extent);
}

}  // namespace trainer
