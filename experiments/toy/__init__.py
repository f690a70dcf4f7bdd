"""The paper's toy experiment: three curved clusters as a stream, and how well each method keeps up."""
